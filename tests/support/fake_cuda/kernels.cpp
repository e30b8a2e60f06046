// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Kernels are looked up, their launch is checked against what CUDA allows, and they are counted. Those of which the
// program has the text run, on the host: see ptx_warp.hpp. Others leave what they would write as it is.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/support/fake_cuda/device.hpp"
#include "tests/support/fake_cuda/fat_binary.hpp"
#include "tests/support/fake_cuda/memory.hpp"
#include "tests/support/fake_cuda/ptx_warp.hpp"
#include "tests/support/fake_cuda/queues.hpp"

namespace fake_cuda {
namespace {

struct Kernel {
  std::string name;  // mangled
  bool has_code = false;
  ptx::Module* module = nullptr;
  const ptx::Function* function = nullptr;   // null before the first launch, and where there is no text
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

// Of each fat binary.
ptx::Module* module_of(const void* binary) {
  static auto& all = *new std::map<const void*, std::unique_ptr<ptx::Module>>;
  const auto [found, is_new] = all.try_emplace(binary);
  if (is_new)
    if (std::string text = ptx_of(binary); !text.empty())
      found->second = std::make_unique<ptx::Module>(binary, std::move(text), variable_address);
  return found->second.get();
}

const ptx::Function* function_of(Kernel& kernel) {
  if (kernel.function == nullptr && kernel.module != nullptr)
    kernel.function = kernel.module->function(kernel.name);
  return kernel.function;
}

std::string problem_of(const Configuration& c, Kernel& kernel) {
  const auto& [grid, block, shared, stream] = c;
  if (std::min({grid.x, grid.y, grid.z}) == 0 || grid.x > 2147483647 || grid.y > 65535 || grid.z > 65535)
    return "a grid of " + text_of(grid);
  if (std::min({block.x, block.y, block.z}) == 0 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      static_cast<std::uint64_t>(block.x) * block.y * block.z > most_threads)
    return "a block of " + text_of(block);
  const ptx::Function* const function = function_of(kernel);
  const std::size_t own = function == nullptr ? 0 : function->shared_bytes;
  if (shared + own > static_cast<std::size_t>(kernel.shared_bytes))
    return std::to_string(shared) + " + " + std::to_string(own) + " bytes of shared memory, of " +
           std::to_string(kernel.shared_bytes) + " allowed";
  if (function != nullptr && std::size_t{block.x} * block.y * block.z > function->most_threads)
    return "a block of " + text_of(block) + ", compiled for " + std::to_string(function->most_threads) + " threads";
  return {};
}

// Larger launches are left out: only who measures how fast a GPU is fills such matrices here.
constexpr std::uint64_t most_threads_run = (std::uint64_t{1} << 24) - 1;

std::uint64_t threads_of(const Configuration& c) {
  return std::uint64_t{c.grid.x} * c.grid.y * c.grid.z * c.block.x * c.block.y * c.block.z;
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

Work work_of(Kernel& kernel, const Configuration& configuration, void** arguments) {
  if (kernel.name.find("query_cuda_kernel_arch") != std::string::npos)
    return tell_architecture(arguments);
  const ptx::Function* const function = function_of(kernel);
  if (function == nullptr || threads_of(configuration) > most_threads_run) {
    ++counts().left_out;
    return [] { return true; };
  }
  const auto launch = std::make_shared<ptx::Launch>(ptx::Launch{
      kernel.module, function, readable(kernel.name), configuration.grid, configuration.block,
      configuration.shared_bytes, std::vector<char>(function->parameter_bytes), counts().kernels[kernel.name]});
  for (std::size_t i = 0; i < function->parameters.size(); ++i)
    std::memcpy(launch->parameters.data() + function->parameters[i].offset, arguments[i],
                function->parameters[i].bytes);
  return [launch] {
    run(*launch);
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
  return enqueue(configuration.stream, what, work_of(*kernel, configuration, arguments));
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
  kernel->has_code = has_code_for(binary, compute_capability());
  if (setting("KERNELS", 1) != 0)
    kernel->module = module_of(binary);
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
  Kernel* const kernel = kernel_of(function, "cudaFuncGetAttributes");
  if (kernel == nullptr)
    return answer(cudaErrorInvalidDeviceFunction);
  if (!kernel->has_code)
    return answer(cudaErrorNoKernelImageForDevice);
  *attributes = {};
  attributes->maxThreadsPerBlock = most_threads;
  attributes->numRegs = 32;
  attributes->maxDynamicSharedSizeBytes = kernel->shared_bytes;
  if (const ptx::Function* const code = function_of(*kernel)) {
    attributes->sharedSizeBytes = code->shared_bytes;
    attributes->maxDynamicSharedSizeBytes -= static_cast<int>(code->shared_bytes);
    attributes->maxThreadsPerBlock = static_cast<int>(code->most_threads);
    attributes->localSizeBytes = code->local_bytes;
    const int threads = static_cast<int>(code->most_threads * code->least_blocks);  // that registers must be there for
    attributes->numRegs = std::min(64, registers / threads / 8 * 8);
  }
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
