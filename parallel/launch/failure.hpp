// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "core/error.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Ends the job with one error block on standard error, printed by one rank. A rank that knows a cause prints before
/// those that only see a failed or late message (ExitCode::communication), which wait two seconds for it. Among equal
/// ranks the lowest that reports within a quarter of a second prints. So an error that all ranks find is printed by
/// rank 0 once, and an error of one rank by that rank. Then MPI_Abort with the code. srun turns every code of MPI_Abort
/// into 137: below it ranks that all fail with the same code exit with it together.
/// @param failures a communicator of its own, made by Runtime: the others may be anywhere.
[[noreturn]] void fail_job(const Communicator& failures, ExitCode code, const std::string& text);

/// The same; `knows_cause` replaces what the code says about it.
[[noreturn]] void fail_job(const Communicator& failures, ExitCode code, const std::string& text, bool knows_cause);

/// While the job lives, std::exit() on any rank ends it as a failure, whatever the code: the others would wait for
/// ever, or take the run for complete. One job at a time; nullptr: the job is over.
void watch_for_exit(const Communicator* failures);

/// Does `work`, which enqueues messages on streams of a device. If it throws, the device links are aborted before the
/// caller destroys anything: freeing memory of a device waits for all its streams, and these may wait for ranks that
/// have failed.
void abort_links_on_error(const Communicator& world, const std::function<void()>& work);

/// @throws Error (ExitCode::communication) when a device link has been aborted: what kernels have read since is no
/// message. Called after a wait for the device, before results are kept.
void require_links_alive(const Communicator& world);

/// While it lives, a rank that calls std::exit() calls `action` with the report before it ends the job: other ranks
/// have no time to record the cause. One at a time.
class AtEarlyExit {
 public:
  explicit AtEarlyExit(std::function<void(const std::string& report)> action);
  ~AtEarlyExit();
  AtEarlyExit(const AtEarlyExit&) = delete;
  AtEarlyExit& operator=(const AtEarlyExit&) = delete;
};

}  // namespace espalier
