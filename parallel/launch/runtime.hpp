// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Initializes and finalizes the launch environment, MPI, Kokkos and the memory ledger, in this order and the opposite
/// one. The first object of main. If MPI or Kokkos already run, they are used and left running.
class Runtime {
 public:
  /// Chooses threads, binding and wait policy where the user has not (it may start the program again, once, see
  /// launch_environment.hpp); then MPI_Init_thread and Kokkos::initialize, which takes the --kokkos-* arguments.
  /// @throws Error (usage) for an argument that Kokkos does not understand, and for variables of OpenMP that would keep
  /// threads from starting; (memory, write) for limits of the process that would.
  Runtime(int& argc, char**& argv);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  const Communicator& world() const { return *world_; }
  int rank() const { return world_->rank(); }
  int size() const { return world_->size(); }

  /// One line for the log: ranks, threads, cores, what was chosen, how waits are done.
  std::string describe() const;

  /// What slows every command down: more threads than cores on a host. On rank 0; empty where there is nothing.
  const std::string& warning() const { return warning_; }

  /// Ends the job, see fail_job().
  [[noreturn]] void fail(ExitCode code, const std::string& text) const;

 private:
  struct WithoutKokkos {};
  friend int run_job(int& argc, char**& argv, const std::function<int(Runtime&)>& body);

  Runtime(int& argc, char**& argv, WithoutKokkos);
  void start_kokkos(int& argc, char**& argv);

  bool owns_mpi_ = false;
  bool owns_kokkos_ = false;
  int exceptions_at_start_;
  std::string launch_;
  std::string device_;
  std::string warning_;
  std::optional<Communicator> world_;
  std::optional<Communicator> failures_;
};

/// Runs `body` under a Runtime. An exception that leaves it ends the job: one error block, the right exit code, no rank
/// left behind.
int run_job(int& argc, char**& argv, const std::function<int(Runtime&)>& body);

/// "MPICH 4.0.2", the first line of MPI's own version text; also before MPI_Init.
std::string mpi_library_version();

}  // namespace espalier
