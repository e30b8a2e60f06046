// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "core/optim/learning_rate.hpp"

using namespace espalier;

namespace {

constexpr double peak = 1e-3;
constexpr double minimum = 1e-4;

LearningRate rate(LearningRateShape shape) {
  return {.shape = shape, .peak = peak, .minimum = minimum, .warmup_steps = 4, .decay_steps = 24, .stable_until = 14};
}

TEST(LearningRate, every_shape_warms_up_in_equal_steps) {
  for (const auto shape : {LearningRateShape::constant, LearningRateShape::linear, LearningRateShape::cosine,
                           LearningRateShape::warmup_stable_decay})
    for (Index step = 0; step <= 4; ++step)
      EXPECT_NEAR(rate(shape).at(step), peak * static_cast<double>(step + 1) / 5, 1e-15) << to_string(shape);
}

TEST(LearningRate, cosine) {
  const LearningRate cosine = rate(LearningRateShape::cosine);
  EXPECT_NEAR(cosine.at(14), (peak + minimum) / 2, 1e-15);
  EXPECT_NEAR(cosine.at(9), minimum + (peak - minimum) * (2 + std::sqrt(2.0)) / 4, 1e-15);
  EXPECT_NEAR(cosine.at(24), minimum, 1e-15);
  EXPECT_NEAR(cosine.at(1000), minimum, 1e-15);
}

TEST(LearningRate, linear) {
  const LearningRate linear = rate(LearningRateShape::linear);
  EXPECT_NEAR(linear.at(9), peak - 0.25 * (peak - minimum), 1e-15);
  EXPECT_NEAR(linear.at(24), minimum, 1e-15);
  EXPECT_NEAR(linear.at(1000), minimum, 1e-15);
}

TEST(LearningRate, constant) {
  EXPECT_EQ(rate(LearningRateShape::constant).at(5), peak);
  EXPECT_EQ(rate(LearningRateShape::constant).at(1000), peak);
}

TEST(LearningRate, warmup_stable_decay) {
  const LearningRate stable = rate(LearningRateShape::warmup_stable_decay);
  EXPECT_EQ(stable.at(5), peak);
  EXPECT_EQ(stable.at(14), peak);
  EXPECT_NEAR(stable.at(19), (peak + minimum) / 2, 1e-15);
  EXPECT_NEAR(stable.at(24), minimum, 1e-15);
  EXPECT_NEAR(stable.at(1000), minimum, 1e-15);
}

TEST(LearningRate, without_warm_up_or_decay_steps_is_defined) {
  EXPECT_EQ((LearningRate{.peak = peak, .minimum = minimum, .decay_steps = 10}).at(0), peak);
  const LearningRate all_warm_up{.peak = peak, .minimum = minimum, .warmup_steps = 10, .decay_steps = 10};
  EXPECT_EQ(all_warm_up.at(10), peak);
  EXPECT_NEAR(all_warm_up.at(11), minimum, 1e-15);
}

}  // namespace
