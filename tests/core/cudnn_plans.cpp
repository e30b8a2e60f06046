// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Asks cuDNN, on a machine that needs no GPU, whether it has kernels for what Espalier describes to it: the layout of
// our arrays, causal, in a fixed order. GPUs are described in cuDNN's own words; and as it asks the CUDA runtime all
// the same, this program answers in its place.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/ops/cudnn_plan.hpp"

namespace {

using espalier::impl::CudnnAttention;
using espalier::impl::CudnnShape;

struct Gpu {
  const char* name;
  int architecture;  // 900: sm_90
  int multiprocessors;
  int shared_memory;  // of a block, at most
  int l2_cache;
  std::size_t memory;
};

std::string description(const Gpu& gpu) {
  return fmt::format(
      R"({{"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"deviceVer":{},"driverVer":13000,)"
      R"("cudaDeviceId":0,"regsPerBlock":65536,"multiProcessorCount":{},"smClockRateKHz":1500000,)"
      R"("memClockRateKHz":2000000,"l2CacheSize":{},"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
      R"("maxSharedMemoryPerBlockOptin":{},"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,)"
      R"("pciDeviceId":0,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"isTccDriver":0,)"
      R"("supportCoopLaunch":1,"totalGlobalMem":{},"deviceName":"{}"}})",
      gpu.architecture, gpu.multiprocessors, gpu.l2_cache, gpu.shared_memory, gpu.memory, gpu.name);
}

// The one that is asked about.
Gpu gpu;

// Answers of cuDNN that are not those wanted.
int count_wrong(const std::vector<std::pair<CudnnShape, bool>>& shapes) {
  int wrong = 0;
  for (const auto& [shape, wanted] : shapes) {
    const std::string refusal = CudnnAttention(shape, nullptr, description(gpu)).refusal();
    if (refusal.empty() == wanted)
      continue;
    ++wrong;
    fmt::print(stderr, "cudnn_plans: {}: batch {}, length {}, {} heads of {} ({} of keys), window {}: {}\n", gpu.name,
               shape.batch, shape.sequence_length, shape.num_heads, shape.head_size, shape.num_kv_heads, shape.window,
               wanted ? refusal : "not refused");
  }
  return wrong;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  fmt::format_to_n(properties->name, sizeof properties->name - 1, "{}", gpu.name);
  properties->major = gpu.architecture / 100;
  properties->minor = gpu.architecture / 10 % 10;
  properties->multiProcessorCount = gpu.multiprocessors;
  properties->sharedMemPerBlockOptin = static_cast<std::size_t>(gpu.shared_memory);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor   ? gpu.architecture / 100
           : attribute == cudaDevAttrComputeCapabilityMinor ? gpu.architecture / 10 % 10
           : attribute == cudaDevAttrMultiProcessorCount    ? gpu.multiprocessors
                                                            : 0;
  return cudaSuccess;
}
}

int main() {
  const std::vector<std::pair<CudnnShape, bool>> shapes = {
      {{32, 1024, 12, 12, 64, 0, true}, true},    // gpt2-124m
      {{8, 1024, 25, 25, 64, 0, true}, true},     // gpt2-1558m
      {{4, 2048, 32, 32, 128, 0, true}, true},    // a model of some 7 billion parameters
      {{1, 8192, 32, 32, 128, 0, true}, true},    // heads that backward takes a few at a time
      {{8, 2048, 9, 3, 64, 0, true}, true},       // smollm2-135m: three heads share keys and values
      {{1, 8192, 32, 8, 128, 0, true}, true},     // llama-3.1-8b
      {{1, 8192, 32, 8, 128, 4096, true}, true},  // mistral-7b: windows, and groups
      {{2, 129, 3, 3, 80, 0, true}, true},        // lengths and heads that divide nothing
      {{2, 129, 6, 1, 80, 33, true}, true},      {{1, 77, 1, 1, 8, 0, false}, true},  // fp16
      {{2, 64, 2, 2, 12, 0, true}, false},     // rows that are no multiple of 16 bytes
      {{1, 1024, 1, 1, 264, 0, true}, false},  // heads that no kernel has
      {{1, 1024, 1, 1, 1024, 0, true}, false}};
  const CudnnShape large_heads{4, 1024, 12, 12, 136, 0, true};  // that of Hopper alone has kernels for
  int wrong = 0;
  for (const Gpu& asked : {Gpu{"NVIDIA A100-SXM4-80GB", 800, 108, 166912, 40 << 20, std::size_t{80} << 30},
                           Gpu{"NVIDIA H200", 900, 132, 232448, 60 << 20, std::size_t{140} << 30},
                           Gpu{"NVIDIA B200", 1000, 148, 232448, 126 << 20, std::size_t{180} << 30}}) {
    gpu = asked;
    wrong += count_wrong(shapes) + count_wrong({{large_heads, gpu.architecture == 900}});
  }
  fmt::print("cuDNN {}: {} shapes on each of three GPUs, {} wrong answers\n", espalier::impl::cudnn_version(),
             shapes.size() + 1, wrong);
  return wrong == 0 ? 0 : 1;
}
