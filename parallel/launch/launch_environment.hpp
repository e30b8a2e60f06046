// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace espalier {

/// What a rank can know before MPI_Init: its neighbours from the launcher's environment, its cores from the system.
struct LaunchFacts {
  int local_ranks = 1;  ///< ranks on this host
  int local_rank = 0;
  std::vector<int> cores;          ///< that this process may run on
  double cpu_limit = 0;            ///< cores' worth of time for the ranks of this host (control group); 0: no limit
  bool bound_by_launcher = false;  ///< the cores are this rank's alone
};

/// What Espalier chooses if the user has not.
struct LaunchPlan {
  std::vector<std::pair<std::string, std::string>> variables;  ///< environment to set
  std::vector<int> bind_to;                                    ///< cores of this rank; empty: leave as it is
  int num_threads = 1;
  bool ranks_share_cores = false;
};

/// Variables of ours for GPUs, which options set and every rank reads.
inline constexpr const char* ranks_per_gpu_variable = "ESPALIER_RANKS_PER_GPU";
inline constexpr const char* transport_variable = "ESPALIER_TRANSPORT";

/// Value of an environment variable, or nullptr.
using Environment = std::function<const char*(const char*)>;

/// That of this process.
const char* process_environment(const char* name);

/// The number of ranks, 1 or more, that a variable holds; none: it is not set.
/// @param name as the error calls it. @throws Error (usage)
std::optional<int> ranks_in_environment(const char* variable, const std::string& name);

/// Rank and size as the launcher's environment has them, before and without MPI.
struct LaunchedRank {
  int rank = 0;
  int size = 1;
  std::string launcher;  ///< and the variable that says so; empty: started by no launcher that we know
};
LaunchedRank launched_rank(const Environment& environment = process_environment);

/// By srun itself, not by an mpiexec below it.
bool started_by_srun(const Environment& environment = process_environment);

/// A program started by the launcher of another MPI library is not one job of several ranks, but several jobs of one.
/// @throws Error (usage) when the launcher says that there are several and MPI that there is one.
void require_own_launcher(const LaunchedRank& launched, int world_size, const std::string& mpi_library);

/// MPICH's hydra, Open MPI, PALS and Slurm are known; anything else counts as one rank.
LaunchFacts read_launch_facts(const Environment& environment);

/// Threads = cores / ranks of the host; each rank's threads on cores of their own where there are enough, else no
/// binding and no spinning. Where the user lets OpenMP bind threads (OMP_PROC_BIND, OMP_PLACES=cores) the rank gets its
/// share first: OpenMP knows of no other ranks, and would bind all of them to the same cores. Pure. A variable that the
/// user has set is never among those returned.
LaunchPlan plan_launch(const LaunchFacts& facts, const Environment& environment);

/// Applies the plan. libgomp and OpenBLAS read their environment when they load, so if anything must be set the
/// program starts itself again once, with the same process id, name and arguments; ESPALIER_REEXEC=0 forbids it,
/// ESPALIER_BIND=0 forbids binding. Call before MPI_Init. Returns what was chosen, for the log.
std::string prepare_launch(char** argv);

/// The cores that the calling thread may run on; {0} where the system does not say.
std::vector<int> cores_of_this_thread();

/// Those of this process, also where OpenMP has bound its first thread to one of them already.
std::vector<int> cores_of_this_process();

/// "0-3,8" for {0, 1, 2, 3, 8}.
std::string core_list_text(const std::vector<int>& cores);

}  // namespace espalier
