// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

/// The accelerator of a rank as the backend knows it: device_host.cpp where kernels run on the host and there is
/// nothing to choose, device_cuda.cpp on NVIDIA GPUs.
namespace espalier {

/// One accelerator that this process sees.
struct Device {
  std::string id;            ///< the same for all processes of a host, unlike any other's
  std::string name;          ///< "NVIDIA H200"
  std::string architecture;  ///< "sm_90"
};

/// What this process could compute on, looked up before anything runs there.
struct DeviceSurvey {
  bool needed = false;  ///< this program computes on an accelerator
  std::vector<Device> devices = {};
  std::string problem = {};  ///< why there are none that can be used
  std::string wanted = {};
  std::string advice = {};
};
DeviceSurvey survey_devices();

/// Makes devices[index] of the survey the one that Kokkos starts on, and starts it. Before Kokkos::initialize.
/// @throws Error (ExitCode::usage) when this program holds no code for it: the architectures built and the one found;
/// or when it does not start; (memory) when others have filled it.
void start_device(const Device& device, int index);

/// Those that this program holds code for: "sm_80, sm_90"; empty on hosts.
std::string device_architectures();

/// Of the device that was started: "NVIDIA H200"; empty on hosts.
std::string device_name();

/// Of the device that was started: its streaming multiprocessors; 0 on hosts.
int device_processors();

/// Of the device that was started: what is left, and all it has. 0 on hosts, and where none was started.
struct DeviceMemory {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};
DeviceMemory device_memory();

/// Shows the regions of Kokkos (phases, kernels' callers) in the profiler of the device, unless the user has loaded a
/// Kokkos tool. Before Kokkos::initialize, which loads that tool, and asks once whether regions are to wait for the
/// device.
void show_regions_to_profiler();

}  // namespace espalier
