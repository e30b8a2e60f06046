// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Asks cuDNN, on a machine that needs no GPU, whether it has kernels for what Espalier describes to it: the layout of
// our arrays, causal, in a fixed order. The GPU is described in cuDNN's own words.
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

}  // namespace

int main() {
  const Gpu gpu = {"NVIDIA H200", 900, 132, 232448, 60 << 20, std::size_t{140} << 30};
  const std::vector<std::pair<CudnnShape, bool>> shapes = {
      {{32, 1024, 12, 64, true}, true},    // gpt2-124m
      {{8, 1024, 25, 64, true}, true},     // gpt2-1558m
      {{4, 2048, 32, 128, true}, true},    // a model of some 7 billion parameters
      {{2, 129, 3, 80, true}, true},       // lengths and heads that divide nothing
      {{1, 77, 1, 8, false}, true},        // fp16
      {{2, 64, 2, 12, true}, false},       // rows that are no multiple of 16 bytes
      {{1, 1024, 1, 1024, true}, false}};  // heads that no kernel has
  int wrong = 0;
  for (const auto& [shape, wanted] : shapes) {
    const std::string refusal = CudnnAttention(shape, nullptr, description(gpu)).refusal();
    if (refusal.empty() == wanted)
      continue;
    ++wrong;
    fmt::print(stderr, "cudnn_plans: {}: batch {}, length {}, {} heads of {}: {}\n", gpu.name, shape.batch,
               shape.sequence_length, shape.num_heads, shape.head_size, wanted ? refusal : "not refused");
  }
  fmt::print("cuDNN {} has kernels for {}: {} answers, {} wrong\n", espalier::impl::cudnn_version(), gpu.name,
             shapes.size(), wrong);
  return wrong == 0 ? 0 : 1;
}
