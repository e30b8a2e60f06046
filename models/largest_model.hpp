// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>

#include "core/scalars.hpp"

namespace espalier {

/// The largest sizes that a description of a model may have: far above any model, and low enough that a matrix of any
/// two of them, in bytes, stays below 2^63.
struct LargestModel {
  static constexpr Index vocabulary = std::numeric_limits<TokenId>::max();
  static constexpr Index positions = 1 << 24;
  static constexpr Index batch = 1 << 24;  ///< sequences of a step
  static constexpr Index layers = 1 << 14;
  static constexpr Index channels = 1 << 18;  ///< of the residual stream; heads
  static constexpr Index ffn = 1 << 20;
};

}  // namespace espalier
