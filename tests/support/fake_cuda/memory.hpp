// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fake_cuda {

class Shadow;

enum class Where { device, pinned, pageable };

/// Where `bytes` bytes at an address are, and where the mock may access them. A range that leaves its allocation, was
/// freed, or is at an address of devices where nothing is, is reported as a misuse by `what`, and not valid.
struct Place {
  bool valid = false;
  Where where = Where::pageable;
  char* data = nullptr;
};
Place place_of(const void* address, std::size_t bytes, const std::string& what);

/// Device memory (or pinned memory, which devices reach, too), as an operand must be.
bool is_on_device(const void* address, std::size_t bytes, const std::string& what);

/// The allocation that holds an address of memory that devices reach; no shadow where none does, or where it was freed.
struct DeviceRange {
  std::size_t offset = 0;  ///< of the address
  std::size_t bytes = 0;
  Shadow* shadow = nullptr;
};
DeviceRange allocation_at(std::uint64_t address);

/// Is the address in an allocation that devices reach, freed or not?
bool is_in_allocation(std::uint64_t address);

/// A library takes device memory, or gives it back where bytes < 0, at no address that anybody knows.
void hold_device_memory(std::ptrdiff_t bytes);

/// Where that is, with the label that Kokkos has left in front of it.
std::string name_of(const Shadow* shadow, std::size_t offset);

}  // namespace fake_cuda
