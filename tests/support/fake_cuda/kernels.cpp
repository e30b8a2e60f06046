// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Kernels are looked up, their launch is checked against what CUDA allows, and they are counted. They do not run:
// device memory stays as it was. What they are handed is looked at, see races.hpp.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "tests/support/fake_cuda/device.hpp"
#include "tests/support/fake_cuda/fat_binary.hpp"
#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/races.hpp"
#include "tests/support/fake_cuda/report.hpp"
#include "tests/support/fake_cuda/streams.hpp"

namespace fake_cuda {
namespace {

struct Kernel {
  std::string name;  // mangled
  const void* binary = nullptr;
  int shared_bytes = shared_without_asking;  // that a launch may ask for
};

struct Configuration {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};

// By the address of the function that the host calls.
auto& kernels = *new std::map<const void*, Kernel>;

thread_local std::vector<Configuration> configurations;

Kernel& kernel_of(const void* function, const std::string& what) {
  const auto found = kernels.find(function);
  if (found == kernels.end())
    refuse(cudaErrorInvalidDeviceFunction, what + " of a function that is no kernel");
  return found->second;
}

// Kernels of the Kokkos library are compressed. Ours must not be: their arguments could not be looked at.
const KernelHeader& header_of(const Kernel& kernel) {
  static const KernelHeader unknown;
  const KernelHeader* const header = fake_cuda::header_of(kernel.binary, kernel.name);
  if (header == nullptr && kernel.name.find("espalier") != std::string::npos)
    misuse("the kernel " + kernel.name + " has no PTX to read: nvcc needs --no-compress");
  return header == nullptr ? unknown : *header;
}

std::string text_of(const dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

std::string problem_of(const Configuration& c, const Kernel& kernel, const KernelHeader& header) {
  const auto& [grid, block, shared, stream] = c;
  if (std::min({grid.x, grid.y, grid.z}) == 0 || grid.x > 2147483647 || grid.y > 65535 || grid.z > 65535)
    return "a grid of " + text_of(grid);
  const std::uint64_t threads = static_cast<std::uint64_t>(block.x) * block.y * block.z;
  if (threads == 0 || block.x > 1024 || block.y > 1024 || block.z > 64 || threads > header.max_threads)
    return "a block of " + text_of(block) + ", compiled for " + std::to_string(header.max_threads) + " threads";
  if (shared > static_cast<std::size_t>(kernel.shared_bytes))
    return std::to_string(shared) + " bytes of shared memory, of " + std::to_string(kernel.shared_bytes) + " allowed";
  return {};
}

// Kokkos asks a kernel which code runs: that for this GPU.
Work tell_architecture(void** arguments) {
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

// What of the arguments is the address of an allocation: views lie in functors as pointers.
std::set<std::uint64_t> addresses_in(void** arguments, const KernelHeader& header) {
  std::set<std::uint64_t> addresses;
  for (std::size_t i = 0; i < header.parameter_bytes.size(); ++i)
    for (std::uint64_t word = 0, at = 0; at + sizeof word <= header.parameter_bytes[i]; at += sizeof word) {
      std::memcpy(&word, static_cast<const char*>(arguments[i]) + at, sizeof word);
      if (is_in_allocation(word))
        addresses.insert(word);
    }
  return addresses;
}

Work work_of(const Kernel& kernel, const KernelHeader& header, void** arguments) {
  if (kernel.name.find("query_cuda_kernel_arch") != std::string::npos)
    return tell_architecture(arguments);
  return [name = "the kernel " + kernel.name, addresses = addresses_in(arguments, header)] {
    for (const std::uint64_t address : addresses)
      note_kernel(address, name);
    return true;
  };
}

void launch(const Kernel& kernel, const Configuration& configuration, void** arguments) {
  const std::string what = "the kernel " + kernel.name;
  if (!has_code_for(kernel.binary, compute_capability()))
    refuse(cudaErrorNoKernelImageForDevice, what);
  const KernelHeader& header = header_of(kernel);
  if (const std::string problem = problem_of(configuration, kernel, header); !problem.empty())
    refuse(cudaErrorInvalidConfiguration, what + " is launched with " + problem);
  note_launch(kernel.name);
  enqueue(stream_of(configuration.stream, what), what, work_of(kernel, header, arguments));
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
  kernels[function] = Kernel{name, binary};
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
  return call([&] { *handle = reinterpret_cast<cudaKernel_t>(&kernel_of(function, "a launch")); });
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                               cudaStream_t stream) {
  return call([&] { launch(*reinterpret_cast<Kernel*>(kernel), {grid, block, shared_bytes, stream}, arguments); });
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return call([&] { launch(kernel_of(function, "a launch"), {grid, block, shared_bytes, stream}, arguments); });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return call([&] {
    const Kernel& kernel = kernel_of(function, "cudaFuncGetAttributes");
    if (!has_code_for(kernel.binary, compute_capability()))
      throw Refusal{cudaErrorNoKernelImageForDevice};
    *attributes = {};
    attributes->maxThreadsPerBlock = static_cast<int>(header_of(kernel).max_threads);
    attributes->numRegs = 32;
    attributes->maxDynamicSharedSizeBytes = kernel.shared_bytes;
    attributes->binaryVersion = attributes->ptxVersion = compute_capability();
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return call([&] {
    Kernel& kernel = kernel_of(function, "cudaFuncSetAttribute");
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
      return;
    if (value < 0 || value > static_cast<int>(shared_at_most))
      refuse(cudaErrorInvalidValue, std::to_string(value) + " bytes of shared memory for " + kernel.name);
    kernel.shared_bytes = std::max(value, static_cast<int>(shared_without_asking));
  });
}

}  // extern "C"
