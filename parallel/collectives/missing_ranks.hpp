// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/collectives/communicator.hpp"

// A request of an MPI collective does not say which ranks are missing. So a rank whose deadline has passed asks the
// others how many collectives they have begun. Ranks that wait answer.

namespace espalier::impl {

/// Takes 1 s. @returns the ranks that have not said that they have begun collective number `collective`
std::vector<int> find_missing_ranks(CommunicatorState& communicator, std::uint64_t collective);

/// To be called about twice a second while this rank waits for a collective.
void answer_missing_ranks(CommunicatorState& communicator);

}  // namespace espalier::impl
