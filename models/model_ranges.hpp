// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/value_range.hpp"
#include "models/largest_model.hpp"

// What the values of a ModelConfig may be, wherever they come from: [model] and [rotary], or config.json.

namespace espalier {

struct ModelRange {
  static constexpr IntegerRange vocabulary{1, LargestModel::vocabulary};
  static constexpr IntegerRange positions{1, LargestModel::positions};
  static constexpr IntegerRange layers{1, LargestModel::layers};
  static constexpr IntegerRange channels{1, LargestModel::channels};  ///< and heads
  static constexpr IntegerRange ffn{1, LargestModel::ffn};
  static constexpr FloatRange norm_eps{0, 1, true};
  static constexpr FloatRange dropout{0, 1, false, true};
  static constexpr FloatRange rotary_theta{0, 1e15, true};
  static constexpr FloatRange rotary_factor{1, 1e6};
  static constexpr FloatRange rotary_bound{0, 1e6, true};  ///< rotations, of llama3 and yarn
  static constexpr FloatRange yarn_factor{0, 1e6};         ///< mscale and attention_factor; 0: not given
};

/// Values of the range that are given.
constexpr FloatRange above_min(FloatRange range) { return {range.min, range.max, true, range.max_open}; }

/// The same, or 0, which stands for a value that is not given.
constexpr IntegerRange or_zero(IntegerRange range) { return {0, range.max}; }

}  // namespace espalier
