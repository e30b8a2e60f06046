// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <thread>

#include "core/error.hpp"

namespace espalier {

// Requests to stop: SIGTERM, SIGUSR1, SIGINT and SIGXCPU; SIGHUP and SIGPIPE too, as nobody may look on any more, but
// what nohup started goes on. They have no handler, they wait until the run asks for them: a handler that meets an fp32
// matmul of oneDNN 2.6 (AVX-512) on any thread damages it, whose data lie below the stack pointer, where the system
// puts the handler's frame.

/// Keeps them from this thread and from those it makes from now on, which inherit that; so before MPI and OpenMP make
/// theirs. A request that comes stays and can be asked for.
void hold_stop_requests();

/// While it lives, a request that comes ends the process: a rank that waits in MPI_Init for one that will never come
/// must hear SIGTERM, and so must one that reads its files or measures.
class EndAtStopRequest {
 public:
  /// @param exit_code to end with after one and a half seconds; in the first of them the ranks may agree to end
  /// together; none: at once, by the signal itself, as it would without us
  explicit EndAtStopRequest(std::optional<ExitCode> exit_code);

 private:
  std::jthread watcher_;
};

/// The calling thread takes them again: whatever has come ends the process.
void release_stop_requests();

/// The one that has come, by name ("SIGTERM"); empty: none. Asked by a thread that holds them; SIGPIPE is seen by the
/// thread alone that wrote.
std::string stop_request();

}  // namespace espalier
