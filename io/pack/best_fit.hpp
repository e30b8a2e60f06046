// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// Puts whole documents into rows of `capacity` tokens by best-fit decreasing: the longest first, each into the row
/// that it fills most (Ding et al. 2024, "Fewer Truncations Improve Language Modeling"). Costs n log(capacity).
/// @param lengths 1 to `capacity` tokens each
/// @returns the documents of each row
std::vector<std::vector<Index>> best_fit_rows(std::span<const Index> lengths, Index capacity);

}  // namespace espalier
