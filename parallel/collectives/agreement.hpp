// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "core/error.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Runs `attempt` on every rank and returns when it succeeded on all of them. If it threw on any rank, every rank
/// throws the error of the lowest such rank, with its number: so no rank continues, or waits, alone. Collective;
/// `attempt` itself must not communicate. Other exceptions become an Error by error_from(), also on one rank.
void attempt_together(const Communicator& communicator, ExitCode otherwise, const std::function<void()>& attempt);

}  // namespace espalier
