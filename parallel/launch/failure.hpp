// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "core/error.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Ends the job with one error block on standard error, printed by one rank. A rank that knows a cause goes before
/// those that merely see a failed or late message (ExitCode::communication), which wait two seconds for it; among ranks
/// with the same standing the lowest that reports within a quarter of a second prints. So an error that all ranks
/// find is printed by rank 0 once, and an error of one rank is printed by that rank. Then MPI_Abort with the code;
/// below srun, which makes 137 of every code in MPI_Abort, ranks that all fail with the same code leave with it
/// together.
/// @param failures a communicator of its own, made by Runtime: the others may be anywhere.
[[noreturn]] void fail_job(const Communicator& failures, ExitCode code, const std::string& text);

/// The same for a rank that knows more than its code says.
[[noreturn]] void fail_job(const Communicator& failures, ExitCode code, const std::string& text, bool knows_cause);

/// While the job lives, std::exit() on any rank ends it as a failure, whatever the code: the others would wait for
/// ever, or take the run for complete. One job at a time; nullptr: the job is over.
void watch_for_exit(const Communicator* failures);

/// Does `work`, which puts messages into streams of a device. If it throws, what they still hold is called off before
/// the caller destroys anything: freeing memory of a device waits for all its streams, and those for ranks that may
/// have failed, too.
void or_abandon_links(const Communicator& world, const std::function<void()>& work);

/// @throws Error (ExitCode::communication) when a device link has been called off: what kernels have read since is no
/// message. To be asked after a wait for the device, before what was computed is kept.
void require_links_alive(const Communicator& world);

/// While it lives, a rank that leaves by std::exit() calls this with the report before it ends the job: the ranks that
/// could write down why it ended have no time to. One at a time.
class AtEarlyExit {
 public:
  explicit AtEarlyExit(std::function<void(const std::string& report)> action);
  ~AtEarlyExit();
  AtEarlyExit(const AtEarlyExit&) = delete;
  AtEarlyExit& operator=(const AtEarlyExit&) = delete;
};

}  // namespace espalier
