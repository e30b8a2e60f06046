// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nvtx3/nvToolsExt.h>

#include <Kokkos_Core.hpp>
#include <array>
#include <cstdlib>

#include "core/cuda_check.hpp"
#include "core/error.hpp"
#include "parallel/device/device.hpp"

namespace espalier {
namespace {

// Is only asked for, never launched: has this file device code for a GPU? All rooms are compiled for the same ones.
__global__ void probe() {}

// "800" -> "sm_80". nvcc defines the list.
constexpr std::array built_for{__CUDA_ARCH_LIST__};
std::string architecture_text(int major, int minor) { return fmt::format("sm_{}{}", major, minor); }
std::string built_text() {
  std::vector<std::string> names;
  for (const int architecture : built_for)
    names.push_back(architecture_text(architecture / 100, architecture / 10 % 10));
  return fmt::format("{}", fmt::join(names, ", "));
}

// "13.0" for 13000.
std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string id_of(const cudaUUID_t& uuid) {
  std::string text;
  for (const char byte : uuid.bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// Why the runtime counts no devices, in words that say what to do.
DeviceSurvey without_devices(cudaError_t error) {
  int driver = 0;
  int runtime = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess)
    driver = 0;
  if (cudaRuntimeGetVersion(&runtime) != cudaSuccess)
    runtime = CUDART_VERSION;
  if (error == cudaErrorInsufficientDriver && driver > 0)
    return {.needed = true,
            .devices = {},
            .problem = fmt::format("the NVIDIA driver is too old: it supports CUDA {}, this program was built with {}",
                                   version_text(driver), version_text(runtime)),
            .wanted = fmt::format("a driver for CUDA {} or newer", version_text(runtime / 1000 * 1000)),
            .advice = "use a newer driver, or build Espalier with an older CUDA toolkit"};
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string setting =
      visible == nullptr ? "CUDA_VISIBLE_DEVICES is not set" : fmt::format("CUDA_VISIBLE_DEVICES=\"{}\"", visible);
  return {.needed = true,
          .devices = {},
          .problem = fmt::format("no GPU is visible ({}; {})",
                                 error == cudaSuccess ? "the driver lists none" : cudaGetErrorString(error), setting),
          .wanted = "at least one GPU for each rank",
          .advice = std::string(visible == nullptr ? "" : "unset CUDA_VISIBLE_DEVICES, or name GPUs that are there; ") +
                    "start on a machine with an NVIDIA GPU and ask the job scheduler for it (srun --gpus-per-node); "
                    "nvidia-smi lists what is there; an Espalier built without ESPALIER_ENABLE_CUDA runs on CPUs"};
}

// Of the one that was started.
cudaDeviceProp properties_of_device() {
  int index = 0;
  cudaDeviceProp properties;
  ESPALIER_CUDA(cudaGetDevice(&index));
  ESPALIER_CUDA(cudaGetDeviceProperties(&properties, index));
  return properties;
}

}  // namespace

DeviceSurvey survey_devices() {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0)
    return without_devices(counted);
  DeviceSurvey survey{.needed = true};
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    ESPALIER_CUDA(cudaGetDeviceProperties(&properties, index));
    survey.devices.push_back(
        {id_of(properties.uuid), properties.name, architecture_text(properties.major, properties.minor)});
  }
  return survey;
}

void start_device(const Device& device, int index) {
  cudaError_t started = cudaSetDevice(index);
  if (started == cudaSuccess)
    started = cudaFree(nullptr);  // makes the context
  if (started != cudaSuccess)
    throw Error(ExitCode::usage, {.what = "a GPU does not start",
                                  .where = fmt::format("GPU {} ({}, {})", index, device.name, device.architecture),
                                  .got = cudaGetErrorString(started),
                                  .wanted = "a GPU that accepts this process",
                                  .todo = "look at nvidia-smi: its compute mode may be exclusive, or its memory full"});
  cudaFuncAttributes attributes;
  const cudaError_t found = cudaFuncGetAttributes(&attributes, probe);
  if (found != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw Error(ExitCode::usage,
                {.what = "this build of Espalier has no code for the GPU of this rank",
                 .where = fmt::format("GPU {} ({}); {}", index, device.name, cudaGetErrorString(found)),
                 .got = device.architecture,
                 .wanted = fmt::format("one of {}, which it was built for", built_text()),
                 .todo = "build Kokkos and Espalier for this architecture, an old one with an older CUDA toolkit; see "
                         "docs/gpus.md"});
  }
  constexpr std::size_t min_bytes = std::size_t{16} << 20;  // what Kokkos and the libraries take at their start
  if (const DeviceMemory memory = device_memory(); memory.total_bytes > 0 && memory.free_bytes < min_bytes)
    throw Error(ExitCode::memory,
                {.what = "the memory of a GPU is full before this job uses any",
                 .where = fmt::format("GPU {} ({})", index, device.name),
                 .got = fmt::format("{} MiB free of {} MiB", memory.free_bytes >> 20, memory.total_bytes >> 20),
                 .wanted = fmt::format("{} MiB or more", min_bytes >> 20),
                 .todo = "nvidia-smi lists the programs that hold it: end them, or use another GPU"});
  setenv("KOKKOS_DEVICE_ID", std::to_string(index).c_str(), 1);
}

std::string device_architectures() { return built_text(); }

std::string device_name() { return properties_of_device().name; }

int device_processors() { return properties_of_device().multiProcessorCount; }

DeviceMemory device_memory() {
  DeviceMemory memory;
  if (cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // what is asked next shall not find it
    return {};
  }
  return memory;
}

void show_regions_to_profiler() {
  namespace tools = Kokkos::Tools::Experimental;
  if (tools::get_callbacks().push_region != nullptr)
    return;
  // Unless a tool says that no fence is needed, Kokkos waits for the whole device wherever a region begins or ends.
  tools::set_request_tool_settings_callback(
      [](std::uint32_t, Kokkos_Tools_ToolSettings* settings) { settings->requires_global_fencing = false; });
  tools::set_push_region_callback([](const char* name) { nvtxRangePushA(name); });
  tools::set_pop_region_callback([] { nvtxRangePop(); });
}

}  // namespace espalier
