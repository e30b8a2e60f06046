// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/optim/learning_rate.hpp"

#include <algorithm>
#include <cmath>

namespace espalier {

const char* to_string(LearningRateShape shape) {
  switch (shape) {
    case LearningRateShape::constant: return "constant";
    case LearningRateShape::linear: return "linear";
    case LearningRateShape::cosine: return "cosine";
    case LearningRateShape::warmup_stable_decay: return "warmup_stable_decay";
  }
  return "unknown";
}

double LearningRate::at(Index step) const {
  if (step < warmup_steps)
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps + 1);
  const Index start =
      shape == LearningRateShape::warmup_stable_decay ? std::max(stable_until, warmup_steps) : warmup_steps;
  const double span = static_cast<double>(std::max<Index>(1, decay_steps - start));
  const double progress = std::clamp(static_cast<double>(step - start) / span, 0.0, 1.0);
  switch (shape) {
    case LearningRateShape::constant: return peak;
    case LearningRateShape::cosine:
      return minimum + 0.5 * (peak - minimum) * (1 + std::cos(3.141592653589793 * progress));
    case LearningRateShape::linear:
    case LearningRateShape::warmup_stable_decay: return peak + (minimum - peak) * progress;
  }
  return peak;
}

}  // namespace espalier
