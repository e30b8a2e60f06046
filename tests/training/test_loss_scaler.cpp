// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "training/step/loss_scaler.hpp"

namespace espalier {
namespace {

TEST(LossScale, GrowsAndBacksOff) {
  LossScaler scaler({.initial = 64, .minimum = 8, .growth_interval = 2});
  scaler.good_step();
  EXPECT_EQ(scaler.scale(), 64);
  scaler.good_step();
  EXPECT_EQ(scaler.scale(), 128);
  scaler.good_step();
  EXPECT_TRUE(scaler.skipped_step());
  EXPECT_EQ(scaler.scale(), 64);
  scaler.good_step();
  EXPECT_EQ(scaler.scale(), 64) << "good steps are counted anew after an overflow";
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(scaler.skipped_step());
  EXPECT_EQ(scaler.scale(), 8);
  for (int i = 1; i < LossScaler::patience; ++i)
    EXPECT_TRUE(scaler.skipped_step());
  const nlohmann::json state = scaler.state();
  EXPECT_FALSE(scaler.skipped_step());
  EXPECT_EQ(scaler.skipped(), 1 + 3 + LossScaler::patience);
  LossScaler restored({.initial = 64, .minimum = 8, .growth_interval = 2});
  restored.restore(state);
  EXPECT_FALSE(restored.skipped_step());
  EXPECT_EQ(restored.state(), scaler.state());
}

// A run that went on in fp16 after another precision must not begin with the scale of 1 that this one had.
TEST(LossScale, OfAnotherPrecisionIsNotTakenOver) {
  LossScaler scaler({.initial = 64, .minimum = 8, .growth_interval = 2});
  scaler.restore(LossScaler().state());
  EXPECT_EQ(scaler.scale(), 64);
  EXPECT_TRUE(scaler.skipped_step());
  LossScaler inactive;
  inactive.restore(scaler.state());
  EXPECT_EQ(inactive.scale(), 1);
  EXPECT_EQ(inactive.skipped(), 1) << "the moments have not seen that step";
}

TEST(LossScale, StaysWithoutGrowth) {
  LossScaler scaler({.initial = 1, .minimum = 1, .growth_interval = 0});
  for (int i = 0; i < 5000; ++i)
    scaler.good_step();
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_FALSE(LossScaler().is_active());
  EXPECT_EQ(LossScaler().scale(), 1);
}

}  // namespace
}  // namespace espalier
