// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "parallel/launch/launch_environment.hpp"

namespace espalier {

// What must be true of OpenMP's threads before Kokkos starts. Its kernels wait at barriers for all threads of a team:
// with fewer than it counts on they wait for ever. Nothing here communicates.

/// How many threads Kokkos will start, and the setting that says so.
struct WantedThreads {
  int count = 1;
  std::string setting;  ///< "KOKKOS_NUM_THREADS=4"
};

/// --kokkos-threads=N wins over KOKKOS_NUM_THREADS, and that over OpenMP's own number.
WantedThreads wanted_threads(std::span<char* const> arguments, const Environment& environment);

/// @throws Error (usage) for a variable of OpenMP, Kokkos or ours that is set to a value that it does not know, and for
/// more threads than Kokkos takes.
void require_openmp_settings(const WantedThreads& wanted, const Environment& environment);

/// Starts a parallel region and counts its threads.
/// @throws Error (usage) where there are fewer than wanted, with the variables that are known to lower the number.
void require_whole_team(const WantedThreads& wanted, const Environment& environment);

}  // namespace espalier
