// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "core/error.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Runs `attempt` on every rank and returns when it succeeded on all of them. If it threw on any, every rank throws
/// the error of the lowest such rank, which is named: so no rank goes on, or waits, alone. Collective; `attempt` itself
/// must not communicate. What is thrown that is no Error becomes one as by error_from(), on one rank, too.
void attempt_together(const Communicator& communicator, ExitCode otherwise, const std::function<void()>& attempt);

}  // namespace espalier
