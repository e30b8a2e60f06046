// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planning/price_layout.hpp"

// What a layout cannot be on a machine, and what a device has no room for, in words.

namespace espalier {

/// Why the layout cannot exist, in words ("5 pipeline stages need 5 layers, the model has 4"); empty when it can.
std::string why_impossible(const PlanProblem& problem, const Layout& layout);

/// Of the sizes from 1 to `most` that are possible, the nearest below `wanted` and the nearest above it, at most
/// `farthest` away.
std::vector<Index> nearest_sizes(Index wanted, Index most, const std::function<bool(Index)>& possible,
                                 Index farthest = 4096);

/// Bytes of a device for what `train` allocates.
std::size_t room_bytes(const PlanProblem& problem);
/// "74.00 GiB free (of 80.00 GiB, 6.00 GiB reserved)".
std::string room_text(const PlanProblem& problem);

/// Whether a device has room for so many.
bool has_room(const PlanProblem& problem, std::size_t bytes);

/// Why a device has no room for it: what, where, by how much; empty when it fits.
std::string why_too_large(const PlanProblem& problem, const LayoutPrice& price);

}  // namespace espalier
