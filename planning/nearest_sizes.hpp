// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// Of the sizes from 1 to `most` that are possible, the nearest below `wanted` and the nearest above it, at most
/// `farthest` away.
std::vector<Index> nearest_sizes(Index wanted, Index most, const std::function<bool(Index)>& possible,
                                 Index farthest = 4096);

/// The nearest below and above that `step` divides.
std::vector<Index> nearest_multiples(Index wanted, Index step);

/// " (nearest: 4 or 6)"; empty of none.
std::string nearest_text(const std::vector<Index>& sizes);

}  // namespace espalier
