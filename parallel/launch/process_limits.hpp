// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <string>

#include "core/machine_memory.hpp"

namespace espalier {

/// Limits of this process by `ulimit` and the host, below which MPI and GEMM libraries abort or hang. Bytes; the
/// largest number if there is no limit.
struct ProcessLimits {
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  MemoryLimit memory = {.bytes = none};
  std::size_t stack = none;
  std::size_t file_size = none;
  std::size_t open_files = none;
  std::size_t shared_memory = none;  ///< size of /dev/shm
};

/// Those of this process.
ProcessLimits read_process_limits();

/// Raises the soft limit of open files: a run keeps all its token files open.
void raise_open_files();

/// Before MPI_Init. Pure.
/// @throws Error (memory; write for the size of files) for the first limit with which no rank can start, by the name
/// that the user knows it by.
void require_process_limits(const ProcessLimits& limits, int local_ranks, int num_threads);

/// Starts so many threads besides this one, as OpenMP would, and ends them when it goes out of scope. If the system
/// refuses a thread, OpenMP would end the process without a helpful message.
class ThreadProbe {
 public:
  /// @throws Error (memory; usage where OMP_STACKSIZE is to blame) that names the limits in force.
  explicit ThreadProbe(int num_threads);
  ~ThreadProbe();
  ThreadProbe(const ThreadProbe&) = delete;
  ThreadProbe& operator=(const ThreadProbe&) = delete;

 private:
  struct Threads;
  std::unique_ptr<Threads> threads_;
};

/// Bytes of "512k", "2 M", "4096" (KiB), as OMP_STACKSIZE has them; 0 for what is no size.
std::size_t stack_size_in(const std::string& text);

}  // namespace espalier
