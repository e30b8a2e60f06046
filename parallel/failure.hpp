// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/error.hpp"
#include "parallel/communicator.hpp"

namespace espalier {

/// Ends the job with one error block on standard error, printed by one rank. A rank that knows a cause goes before
/// those that merely see a failed or late message (ExitCode::communication), which wait two seconds for it; among ranks
/// with the same standing the lowest that reports within a quarter of a second prints. So an error that all ranks
/// find is printed by rank 0 once, and an error of one rank is printed by that rank. Then MPI_Abort with the code.
/// @param failures a communicator of its own, made by Runtime: the others may be anywhere.
[[noreturn]] void fail_job(const Communicator& failures, ExitCode code, const std::string& text);

/// The same for a rank that knows more than its code says.
[[noreturn]] void fail_job(const Communicator& failures, ExitCode code, const std::string& text, bool knows_cause);

/// While the job lives, std::exit() on any rank ends it as a failure, whatever the code: the others would wait for
/// ever, or take the run for complete. One job at a time; nullptr: the job is over.
void watch_for_exit(const Communicator* failures);

}  // namespace espalier
