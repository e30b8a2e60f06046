// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Allocations. Device memory is a range of addresses that the host cannot touch, with its bytes elsewhere; addresses
// are not given twice, so that use after free is seen. They are aligned as CUDA promises, to 256 bytes and no more.
#include "tests/support/fake_cuda/memory.hpp"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "tests/support/fake_cuda/device.hpp"
#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/report.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

constexpr std::size_t alignment = 256;
constexpr std::size_t page = 4096;
constexpr std::size_t address_space = std::size_t{1} << 43;  // of addresses alone

struct Allocation {
  std::size_t bytes;
  Where where;
  char* data;
  bool freed;
  std::shared_ptr<Shadow> shadow = {};
};

std::uintptr_t first_address = 0, next_address = 0;  // of device memory
std::size_t used = 0;
// Not destroyed before the end of the process is told.
auto& allocations = *new std::map<std::uintptr_t, Allocation>;
auto& symbols = *new std::map<const void*, std::size_t>;  // variables of device code, and their bytes

std::size_t up(std::size_t bytes, std::size_t step) { return (bytes + step - 1) / step * step; }

std::string hex(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  return text;
}

void* map_pages(std::size_t bytes, int protection) {
  void* const pages = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return pages == MAP_FAILED ? nullptr : pages;
}

bool is_device_address(std::uintptr_t address) {
  return first_address != 0 && address >= first_address && address < first_address + address_space;
}

// The one that holds the address, freed or not.
auto allocation_around(std::uintptr_t address) {
  const auto next = allocations.upper_bound(address);
  if (next == allocations.begin())
    return allocations.end();
  const auto found = std::prev(next);
  return address - found->first < found->second.bytes ? found : allocations.end();
}

// The host touched what it must not: says so, and lets the signal end the process.
void on_fault(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  char text[128];
  const int length =
      std::snprintf(text, sizeof text, "fake CUDA: the host touched %s at %p\n",
                    is_device_address(address) ? "device memory" : "memory that is not there", info->si_addr);
  static_cast<void>(!write(2, text, static_cast<std::size_t>(length)));
  ::signal(signal, SIG_DFL);
}

std::size_t free_memory() {
  const auto limit = static_cast<std::size_t>(setting("FREE_MIB", total_memory >> 20)) << 20;
  return limit > used ? limit - used : 0;
}

void reserve_addresses() {
  void* const reserved = map_pages(address_space, PROT_NONE);
  if (reserved == nullptr)
    refuse(cudaErrorMemoryAllocation, "no addresses for device memory: is there a limit (ulimit -v)?");
  first_address = reinterpret_cast<std::uintptr_t>(reserved);
  next_address = up(first_address, page) + alignment;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

void* new_device_address(std::size_t bytes) {
  if (first_address == 0)
    reserve_addresses();
  // In the upper half of 4 GiB: padding behind a small number in the arguments of a kernel may hold half of an address.
  constexpr std::uintptr_t half = std::uintptr_t{1} << 31;
  if (const std::uintptr_t begin = next_address % (2 * half); begin < half || begin + bytes > 2 * half)
    next_address += (begin < half ? half : 3 * half) - begin + alignment;
  void* const address = reinterpret_cast<void*>(next_address);
  next_address += up(bytes, 2 * alignment) + 2 * alignment;  // an odd multiple of 256, and a gap behind
  return address;
}

void allocate(void** address, std::size_t bytes, Where where, const char* call) {
  refuse_if_captured(call);
  *address = nullptr;
  if (bytes == 0)
    return;
  const bool is_full = where == Where::device && bytes > free_memory();
  void* const data = is_full ? nullptr : map_pages(up(bytes, page), PROT_READ | PROT_WRITE);
  if (data == nullptr)
    throw Refusal{cudaErrorMemoryAllocation};
  *address = where == Where::device ? new_device_address(bytes) : data;
  allocations[reinterpret_cast<std::uintptr_t>(*address)] = {bytes, where, static_cast<char*>(data), false};
  count(where == Where::device ? "allocations" : "pinned_allocations");
  used += where == Where::device ? bytes : 0;
}

void release(void* address, Where where, const std::string& call) {
  refuse_if_captured(call);
  if (address == nullptr)
    return;
  const std::string what = call + " of " + hex(address);
  const auto found = allocations.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == allocations.end())
    refuse(cudaErrorInvalidValue, what + ", which was not allocated");
  Allocation& allocation = found->second;
  if (allocation.freed)
    refuse(cudaErrorInvalidValue, what + " for the second time");
  if (allocation.where != where)
    refuse(cudaErrorInvalidValue, what + ", memory of the other kind");
  if (where == Where::pinned && is_pending(allocation.data, allocation.bytes))
    misuse(what + " while a copy from or to it is queued");
  allocation.freed = true;
  allocation.shadow = nullptr;
  if (where == Where::pinned)
    mprotect(allocation.data, up(allocation.bytes, page), PROT_NONE);
  count(where == Where::device ? "frees" : "pinned_frees");
  used -= where == Where::device ? allocation.bytes : 0;
  madvise(allocation.data, up(allocation.bytes, page), MADV_DONTNEED);
}

}  // namespace

void hold_device_memory(std::ptrdiff_t bytes) { used += static_cast<std::size_t>(bytes); }

Place place_of(const void* address, std::size_t bytes, const std::string& what) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (const auto found = allocation_around(at); found != allocations.end()) {
    const auto& [first, allocation] = *found;
    if (allocation.freed) {
      misuse(what + " uses " + hex(address) + ", " + std::to_string(at - first) + " bytes into memory that was freed");
      return {};
    }
    if (at - first + bytes > allocation.bytes) {
      misuse(what + " uses " + std::to_string(bytes) + " bytes at " + hex(address) + ", where " +
             std::to_string(allocation.bytes - (at - first)) + " are left of an allocation");
      return {};
    }
    return {true, allocation.where, allocation.data + (at - first)};
  }
  if (address == nullptr || is_device_address(at)) {
    misuse(what + " uses " + hex(address) + ", where no memory is");
    return {};
  }
  return {true, Where::pageable, static_cast<char*>(const_cast<void*>(address))};
}

bool is_on_device(const void* address, std::size_t bytes, const std::string& what) {
  const Place place = place_of(address, bytes, what);
  if (place.valid && place.where == Where::pageable)
    misuse(what + " is handed host memory at " + hex(address));
  return place.valid && place.where != Where::pageable;
}

DeviceRange allocation_at(std::uint64_t address) {
  const auto found = allocation_around(address);
  if (found == allocations.end() || found->second.freed)
    return {};
  auto& [first, allocation] = *found;
  if (!allocation.shadow)
    allocation.shadow = std::make_shared<Shadow>();
  return {address - first, allocation.bytes, allocation.shadow.get()};
}

bool is_in_allocation(std::uint64_t address) { return allocation_around(address) != allocations.end(); }

std::string name_of(const Shadow* shadow, std::size_t offset) {
  for (const auto& [address, allocation] : allocations) {
    if (allocation.shadow.get() != shadow)
      continue;
    const std::string where = "byte " + std::to_string(offset) + " of " + std::to_string(allocation.bytes) + " at " +
                              hex(reinterpret_cast<void*>(address));
    constexpr std::size_t header = 128, before_label = sizeof(void*);  // Kokkos::Impl::SharedAllocationHeader
    if (allocation.bytes < header || allocation.where == Where::pinned)
      return where;
    const char* const label = allocation.data + before_label;
    const std::size_t length = strnlen(label, header - before_label);
    const bool is_text = length > 0 && std::all_of(label, label + length, [](char c) { return c >= ' ' && c <= '~'; });
    return is_text ? where + " (" + std::string(label, length) + ")" : where;
  }
  return "memory that was freed";
}

void tell_leaked_memory() {
  for (const auto& [address, allocation] : allocations)
    if (!allocation.freed)
      misuse(std::to_string(allocation.bytes) + " bytes of " +
             (allocation.where == Where::pinned ? "pinned host" : "device") + " memory at " +
             hex(reinterpret_cast<void*>(address)) + " were never freed");
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return call([&] { allocate(address, bytes, Where::device, "cudaMalloc"); });
}
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  return call([&] { allocate(address, bytes, Where::pinned, "cudaMallocHost"); });
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) { return cudaMallocHost(address, bytes); }

// It waits for the device, as the real one does.
cudaError_t cudaFree(void* address) {
  return call([&](Lock& lock) {
    if (address != nullptr && !is_anything_captured()) {
      count("device_synchronizations");
      finish_everything(lock);
    }
    release(address, Where::device, "cudaFree");
  });
}
cudaError_t cudaFreeHost(void* address) {
  return call([&] { release(address, Where::pinned, "cudaFreeHost"); });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return call([&] {
    *free_bytes = free_memory();
    *total_bytes = total_memory;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return call([&] {
    const Place place = place_of(address, 1, "cudaPointerGetAttributes");
    if (!place.valid)
      throw Refusal{cudaErrorInvalidValue};
    *attributes = {};
    attributes->type = place.where == Where::device   ? cudaMemoryTypeDevice
                       : place.where == Where::pinned ? cudaMemoryTypeHost
                                                      : cudaMemoryTypeUnregistered;
    attributes->device = current_device();
    attributes->devicePointer = place.where == Where::pageable ? nullptr : const_cast<void*>(address);
    attributes->hostPointer = place.where == Where::device ? nullptr : const_cast<void*>(address);
  });
}

void __cudaRegisterVar(void**, char* host, char*, const char*, int, size_t bytes, int, int) {
  const Lock lock = lock_all();
  symbols[host] = bytes;
}

// No kernel runs that would read it.
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void*, size_t bytes, size_t offset, cudaMemcpyKind) {
  return call([&] {
    refuse_if_captured("cudaMemcpyToSymbol");
    const auto found = symbols.find(symbol);
    if (found == symbols.end() || offset + bytes > found->second)
      refuse(cudaErrorInvalidSymbol, "cudaMemcpyToSymbol of " + std::to_string(bytes) + " bytes to a symbol of fewer");
  });
}

}  // extern "C"
