// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/communicator.hpp"

namespace espalier {

/// Threads that compute, of all ranks of a host, and the cores that they may run on.
struct HostLoad {
  int threads = 0;
  int cores = 0;
};

/// That of the host where most threads share a core; on rank 0. Collective.
HostLoad fullest_host(const Communicator& world);

}  // namespace espalier
