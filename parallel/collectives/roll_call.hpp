// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/collectives/communicator.hpp"

// The request of a collective names nobody. So a rank whose deadline has passed asks the others how far they are; those
// that wait answer.

namespace espalier::impl {

/// Takes about 1.5 s. @returns the ranks that do not say that they have begun collective number `collective`
std::vector<int> call_roll(CommunicatorState& communicator, std::uint64_t collective);

/// To be called about every second while this rank waits for a collective.
void answer_roll_call(CommunicatorState& communicator);

}  // namespace espalier::impl
