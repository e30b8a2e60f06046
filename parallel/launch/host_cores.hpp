// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// The cores that the ranks of a host compute on.
struct HostCores {
  std::string host;
  int ranks = 1;
  int threads = 1;         ///< of all ranks together
  std::vector<int> cores;  ///< that any of them may run on
  double limit = 0;        ///< cores' worth of time that the control group allows; 0: no limit
};

/// Measured by the threads of all ranks: the launcher's environment only says what was requested. Collective.
HostCores measure_host_cores(const Communicator& world);

/// How many of these cores the threads can keep busy: the control group may allow less.
int usable_cores(const HostCores& host);

struct HostLoad {
  int threads = 0;
  int cores = 0;  ///< usable
};

/// Of the host that has the fewest cores for each thread. The same on all ranks. Collective.
HostLoad most_crowded_host(const Communicator& world);

/// "4 threads on 2 cores of host n1: ...", what to do about it; empty where each thread can have a core.
std::string crowding_text(const HostCores& host);

/// That of the first host that has one, on rank 0; empty elsewhere. Collective.
std::string crowding_text(const Communicator& world, const HostCores& cores);

}  // namespace espalier
