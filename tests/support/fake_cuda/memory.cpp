// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Allocations. Device memory is a range of addresses that the host cannot touch, with its bytes elsewhere; addresses
// are not given twice, so that use after free is seen. They are aligned as CUDA promises, to 256 bytes and no more.
//   ESPALIER_FAKE_CUDA_FREE_MIB     what others leave of the GPU's memory
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
#include "tests/support/fake_cuda/shadow.hpp"
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

struct Memory {
  std::uintptr_t first = 0, next = 0;  // device addresses
  std::map<std::uintptr_t, Allocation> allocations;
  std::map<const void*, std::size_t> symbols;  // variables of device code, and their bytes
  std::size_t used = 0;
};

Memory& memory() {
  static Memory& state = *new Memory;
  return state;
}

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
  return memory().first != 0 && address >= memory().first && address < memory().first + address_space;
}

// The one that holds the address, freed or not.
auto allocation_around(std::uintptr_t address) {
  auto& allocations = memory().allocations;
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
  return limit > memory().used ? limit - memory().used : 0;
}

void* new_device_address(std::size_t bytes) {
  Memory& m = memory();
  if (m.first == 0) {
    void* const reserved = map_pages(address_space, PROT_NONE);
    if (reserved == nullptr) {
      misuse("no addresses for device memory: is there a limit (ulimit -v)?");
      return nullptr;
    }
    m.first = reinterpret_cast<std::uintptr_t>(reserved);
    m.next = up(m.first, page) + alignment;
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
  }
  // In the upper half of 4 GiB: padding behind a small number in the arguments of a kernel may hold half of an address.
  constexpr std::uintptr_t half = std::uintptr_t{1} << 31;
  if (const std::uintptr_t begin = m.next % (2 * half); begin < half || begin + bytes > 2 * half)
    m.next += (begin < half ? half : 3 * half) - begin + alignment;
  void* const address = reinterpret_cast<void*>(m.next);
  m.next += up(bytes, 2 * alignment) + 2 * alignment;  // an odd multiple of 256, and a gap behind
  return address;
}

cudaError_t allocate(void** address, std::size_t bytes, Where where, const char* call) {
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  if (const cudaError_t allowed = unsafe_call(call); allowed != cudaSuccess)
    return allowed;
  *address = nullptr;
  if (bytes == 0)
    return cudaSuccess;
  if (where == Where::device && bytes > free_memory())
    return answer(cudaErrorMemoryAllocation);
  char* const data = static_cast<char*>(map_pages(up(bytes, page), PROT_READ | PROT_WRITE));
  *address = where == Where::device ? new_device_address(bytes) : data;
  if (data == nullptr || *address == nullptr)
    return answer(cudaErrorMemoryAllocation);
  memory().allocations[reinterpret_cast<std::uintptr_t>(*address)] = {bytes, where, data, false};
  if (where == Where::pinned) {
    ++counts().pinned_allocations;
  } else {
    memory().used += bytes;
    ++counts().allocations;
    counts().peak_bytes = std::max<std::uint64_t>(counts().peak_bytes, memory().used);
  }
  return cudaSuccess;
}

cudaError_t release(void* address, bool pinned, const char* call) {
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  if (address == nullptr)
    return cudaSuccess;
  if (const cudaError_t allowed = unsafe_call(call); allowed != cudaSuccess)
    return allowed;
  const auto found = memory().allocations.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == memory().allocations.end())
    return refuse(cudaErrorInvalidValue, std::string(call) + " of " + hex(address) + ", which was not allocated");
  Allocation& allocation = found->second;
  if (allocation.freed)
    return refuse(cudaErrorInvalidValue, std::string(call) + " of " + hex(address) + " for the second time");
  if (pinned != (allocation.where == Where::pinned))
    return refuse(cudaErrorInvalidValue, std::string(call) + " of memory of the other kind at " + hex(address));
  if (pinned && is_pending(allocation.data, allocation.bytes))
    misuse(std::string(call) + " of " + hex(address) + " while a copy from or to it is queued");
  allocation.freed = true;
  allocation.shadow = nullptr;
  if (pinned) {
    mprotect(allocation.data, up(allocation.bytes, page), PROT_NONE);
    ++counts().pinned_frees;
  } else {
    ++counts().frees;
    memory().used -= allocation.bytes;
  }
  madvise(allocation.data, up(allocation.bytes, page), MADV_DONTNEED);
  return cudaSuccess;
}

}  // namespace

void hold_device_memory(std::ptrdiff_t bytes) { memory().used += static_cast<std::size_t>(bytes); }

Place place_of(const void* address, std::size_t bytes, const std::string& what) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (const auto found = allocation_around(at); found != memory().allocations.end()) {
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

bool is_symbol(const void* symbol, std::size_t bytes, const std::string& what) {
  const auto found = memory().symbols.find(symbol);
  if (found != memory().symbols.end() && bytes <= found->second)
    return true;
  misuse(what + " of " + std::to_string(bytes) + " bytes to a symbol of fewer");
  return false;
}

DeviceRange allocation_at(std::uint64_t address) {
  const auto found = allocation_around(address);
  if (found == memory().allocations.end() || found->second.freed)
    return {};
  auto& [first, allocation] = *found;
  if (!allocation.shadow)
    allocation.shadow = std::make_shared<Shadow>();
  return {address - first, allocation.bytes, allocation.shadow.get()};
}

bool is_in_allocation(std::uint64_t address) { return allocation_around(address) != memory().allocations.end(); }

std::string name_of(const Shadow* shadow, std::size_t offset) {
  for (const auto& [address, allocation] : memory().allocations) {
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
  for (const auto& [address, allocation] : memory().allocations)
    if (!allocation.freed)
      misuse(std::to_string(allocation.bytes) + " bytes of " +
             (allocation.where == Where::pinned ? "pinned host" : "device") + " memory at " +
             hex(reinterpret_cast<void*>(address)) + " were never freed");
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  const Lock lock = lock_all();
  return allocate(address, bytes, Where::device, "cudaMalloc");
}
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  const Lock lock = lock_all();
  return allocate(address, bytes, Where::pinned, "cudaMallocHost");
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  const Lock lock = lock_all();
  return allocate(address, bytes, Where::pinned, "cudaHostAlloc");
}

// It waits for the device, as the real one does.
cudaError_t cudaFree(void* address) {
  Lock lock = lock_all();
  if (address != nullptr && start_call() == cudaSuccess && !is_anything_captured()) {
    ++counts().device_synchronizations;
    finish_everything(lock);
  }
  return release(address, false, "cudaFree");
}
cudaError_t cudaFreeHost(void* address) {
  const Lock lock = lock_all();
  return release(address, true, "cudaFreeHost");
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  const Lock lock = lock_all();
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  *free_bytes = free_memory();
  *total_bytes = total_memory;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  const Lock lock = lock_all();
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  const Place place = place_of(address, 1, "cudaPointerGetAttributes");
  if (!place.valid)
    return answer(cudaErrorInvalidValue);
  *attributes = {};
  attributes->type = place.where == Where::device   ? cudaMemoryTypeDevice
                     : place.where == Where::pinned ? cudaMemoryTypeHost
                                                    : cudaMemoryTypeUnregistered;
  attributes->device = current_device();
  attributes->devicePointer = place.where == Where::pageable ? nullptr : const_cast<void*>(address);
  attributes->hostPointer = place.where == Where::device ? nullptr : const_cast<void*>(address);
  return cudaSuccess;
}

void __cudaRegisterVar(void**, char* host, char*, const char*, int, size_t bytes, int, int) {
  const Lock lock = lock_all();
  memory().symbols[host] = bytes;
}

}  // extern "C"
