// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Kernels do not run: they are looked up, their launch is checked against what CUDA allows, and they are counted.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/support/fake_cuda/device.hpp"
#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/queues.hpp"

namespace fake_cuda {
namespace {

struct Kernel {
  std::string name;  // mangled
  bool has_code = false;
  int shared_bytes = shared_without_asking;  // that a launch may ask for
};

struct Configuration {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};

// By the address of the function that the host calls.
std::map<const void*, std::unique_ptr<Kernel>>& kernels() {
  static auto& all = *new std::map<const void*, std::unique_ptr<Kernel>>;
  return all;
}

thread_local std::vector<Configuration> configurations;

// What __cudaRegisterFatBinary is handed, and what that points to: a header, and entries one behind another.
struct Wrapper {
  int magic, version;
  const char* data;
  void* unused;
};
struct FatHeader {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;
};
struct FatEntry {
  std::uint16_t kind, version;  // 1: PTX, 2: machine code
  std::uint32_t header_bytes;
  std::uint64_t bytes;
  std::uint32_t unused[3];
  std::uint32_t architecture;  // 90
};
constexpr std::uint32_t fat_magic = 0xBA55ED50;

// Machine code runs on GPUs of its major version, PTX on all that are not older.
bool has_code_for(const Wrapper& wrapper, int capability) {
  FatHeader header;
  std::memcpy(&header, wrapper.data, sizeof header);
  if (header.magic != fat_magic) {
    misuse("a fat binary has the magic number " + std::to_string(header.magic));
    return false;
  }
  const char* const end = wrapper.data + header.header_bytes + header.bytes;
  for (const char* at = wrapper.data + header.header_bytes; at < end;) {
    FatEntry entry;
    std::memcpy(&entry, at, sizeof entry);
    const int built_for = static_cast<int>(entry.architecture);
    if (built_for <= capability && (entry.kind == 1 || built_for / 10 == capability / 10))
      return true;
    at += entry.header_bytes + entry.bytes;
  }
  return false;
}

Kernel* kernel_of(const void* function, const std::string& what) {
  const auto found = kernels().find(function);
  if (found != kernels().end())
    return found->second.get();
  misuse(what + " of a function that is no kernel");
  return nullptr;
}

std::string text_of(const dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

std::string problem_of(const Configuration& c, const Kernel& kernel) {
  const auto& [grid, block, shared, stream] = c;
  if (std::min({grid.x, grid.y, grid.z}) == 0 || grid.x > 2147483647 || grid.y > 65535 || grid.z > 65535)
    return "a grid of " + text_of(grid);
  if (std::min({block.x, block.y, block.z}) == 0 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      static_cast<std::uint64_t>(block.x) * block.y * block.z > most_threads)
    return "a block of " + text_of(block);
  if (shared > static_cast<std::size_t>(kernel.shared_bytes))
    return std::to_string(shared) + " bytes of shared memory, of " + std::to_string(kernel.shared_bytes) + " allowed";
  return {};
}

// Kokkos asks a kernel which code runs. All others leave what they would write as it is.
Work work_of(const Kernel& kernel, void** arguments) {
  if (kernel.name.find("query_cuda_kernel_arch") == std::string::npos)
    return [] { return true; };
  int* address = nullptr;
  std::memcpy(&address, arguments[0], sizeof address);
  return [address] {
    const int architecture = compute_capability() * 10;
    const Place place = place_of(address, sizeof architecture, "query_cuda_kernel_arch");
    if (place.valid)
      std::memcpy(place.data, &architecture, sizeof architecture);
    return true;
  };
}

cudaError_t launch(Kernel* kernel, const Configuration& configuration, void** arguments) {
  const Lock lock = lock_all();
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  if (kernel == nullptr)
    return answer(cudaErrorInvalidDeviceFunction);
  const std::string what = "the kernel " + kernel->name;
  if (!kernel->has_code)
    return refuse(cudaErrorNoKernelImageForDevice, what);
  if (const std::string problem = problem_of(configuration, *kernel); !problem.empty())
    return refuse(cudaErrorInvalidConfiguration, what + " is launched with " + problem);
  note_launch(kernel->name);
  return enqueue(configuration.stream, what, work_of(*kernel, arguments));
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) { return static_cast<void**>(wrapper); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void** binary, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*,
                            dim3*, int*) {
  const Lock lock = lock_all();
  auto kernel = std::make_unique<Kernel>();
  kernel->name = name;
  kernel->has_code = has_code_for(*reinterpret_cast<const Wrapper*>(binary), compute_capability());
  kernels()[function] = std::move(kernel);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  const Configuration& last = configurations.back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  configurations.pop_back();
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* handle, const void* function) {
  const Lock lock = lock_all();
  *handle = reinterpret_cast<cudaKernel_t>(kernel_of(function, "a launch"));
  return *handle == nullptr ? answer(cudaErrorInvalidDeviceFunction) : cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                               cudaStream_t stream) {
  return launch(reinterpret_cast<Kernel*>(kernel), {grid, block, shared_bytes, stream}, arguments);
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  cudaKernel_t kernel = nullptr;
  const cudaError_t found = __cudaGetKernel(&kernel, function);
  return found != cudaSuccess ? found : __cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  const Lock lock = lock_all();
  if (const cudaError_t started = start_call(); started != cudaSuccess)
    return started;
  const Kernel* const kernel = kernel_of(function, "cudaFuncGetAttributes");
  if (kernel == nullptr)
    return answer(cudaErrorInvalidDeviceFunction);
  if (!kernel->has_code)
    return answer(cudaErrorNoKernelImageForDevice);
  *attributes = {};
  attributes->maxThreadsPerBlock = most_threads;
  attributes->numRegs = 64;
  attributes->maxDynamicSharedSizeBytes = kernel->shared_bytes;
  attributes->binaryVersion = attributes->ptxVersion = compute_capability();
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  const Lock lock = lock_all();
  Kernel* const kernel = kernel_of(function, "cudaFuncSetAttribute");
  if (kernel == nullptr)
    return answer(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value > static_cast<int>(shared_at_most))
      return refuse(cudaErrorInvalidValue, std::to_string(value) + " bytes of shared memory for " + kernel->name);
    kernel->shared_bytes = std::max(value, static_cast<int>(shared_without_asking));
  }
  return cudaSuccess;
}

}  // extern "C"
