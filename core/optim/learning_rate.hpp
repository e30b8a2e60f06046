// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "core/scalars.hpp"

namespace espalier {

enum class LearningRateShape { constant, linear, cosine, warmup_stable_decay };
const char* to_string(LearningRateShape shape);
inline constexpr std::array all_learning_rate_shapes{LearningRateShape::constant, LearningRateShape::linear,
                                                     LearningRateShape::cosine, LearningRateShape::warmup_stable_decay};

/// Learning rate as a function of the step: a linear warm-up to the peak, then a decay to `minimum` at `decay_steps`.
struct LearningRate {
  LearningRateShape shape = LearningRateShape::cosine;
  double peak = 3e-4;
  double minimum = 3e-5;  ///< not above the peak
  Index warmup_steps = 0;
  Index decay_steps = 0;   ///< the step at which `minimum` is reached; not before the end of the warm-up
  Index stable_until = 0;  ///< warmup_stable_decay: the step at which the (linear) decay starts

  /// The rate of step `step`, counted from 0; the first warm-up step has peak / (warmup_steps + 1).
  double at(Index step) const;
};

}  // namespace espalier
