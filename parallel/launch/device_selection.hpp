// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/collectives/communicator.hpp"
#include "parallel/device/device.hpp"

namespace espalier {

/// Which device a rank has, and how many ranks of its host have the same.
struct DeviceAssignment {
  int index = 0;  ///< among those that the rank sees
  int sharers = 1;
};

/// The devices of the ranks of one host. `visible[r]` are the ids that local rank r sees, in its order, at least one.
/// Each rank in turn takes the first of the devices that it sees with the fewest ranks so far: device r for rank r if
/// all ranks see all devices, and its own if the launcher shows each rank another one. Pure.
std::vector<DeviceAssignment> assign_devices(const std::vector<std::vector<std::string>>& visible);

/// @throws Error (ExitCode::usage) when more than `ranks_per_gpu` ranks have the device of local rank `local_rank`.
void require_allowed_sharing(const std::vector<DeviceAssignment>& assignments, int local_rank, int num_devices,
                             int ranks_per_gpu);

/// ESPALIER_RANKS_PER_GPU, 1 where it is not set. @throws Error (ExitCode::usage) unless it is a number from 1 on.
int allowed_ranks_per_gpu();

/// Finds the device of this rank and starts it. Collective over `world`, before Kokkos::initialize. On hosts nothing.
/// @returns text for the log: "GPU 2 (NVIDIA H200)", and how many ranks share it; with `sharers` that number.
/// @throws Error (ExitCode::usage) on all ranks, for the reason of the lowest rank that has one: no GPU, a driver that
/// is too old, a GPU that this program holds no code for, more ranks than GPUs.
struct SelectedDevice {
  std::string text = {};  ///< for the log; empty on hosts
  int sharers = 1;        ///< the most ranks that any device of the job has
};
SelectedDevice select_device(const Communicator& world);

}  // namespace espalier
