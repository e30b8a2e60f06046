// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fake_cuda {

class Shadow;

enum class Where { device, pinned, managed, pageable };

/// Where `bytes` bytes at an address are, and where the stand-in may touch them. A range that leaves its allocation,
/// was freed, or is at an address of devices where nothing is, is told as a misuse by `what`, and not valid.
struct Place {
  bool valid = false;
  Where where = Where::pageable;
  char* data = nullptr;
};
Place place_of(const void* address, std::size_t bytes, const std::string& what);

/// Device memory (or pinned or managed memory, which devices reach, too), as an operand must be.
bool is_on_device(const void* address, std::size_t bytes, const std::string& what);

/// The allocation that holds an address of device memory, or of memory that devices reach; no bytes where none does, or
/// where it was freed.
struct DeviceRange {
  std::uint64_t first = 0;
  std::size_t bytes = 0;
  char* data = nullptr;
  Shadow* shadow = nullptr;  ///< null where races are not looked for
};
DeviceRange allocation_at(std::uint64_t address);

/// A library takes device memory, or gives it back where bytes < 0, at no address that anybody knows.
void hold_device_memory(std::ptrdiff_t bytes);

/// Where that is, with the label that Kokkos has left in front of it.
std::string name_of(const Shadow* shadow, std::size_t offset);

/// A variable of device code, by the address that the host has for it: device memory, too, at an address of its own.
void* symbol_memory(const void* symbol, std::size_t bytes, std::size_t offset, const std::string& what);
/// And by its name in a fat binary, for device code.
std::uint64_t variable_address(const void* binary, const std::string& name, std::size_t bytes,
                               const std::string& initial);

}  // namespace fake_cuda
