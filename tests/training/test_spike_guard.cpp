// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/median.hpp"
#include "training/step/spike_guard.hpp"

namespace espalier::test {
namespace {

RunConfig::Stability policy(SpikePolicy on_spike, Index window = 8) {
  RunConfig::Stability config;
  config.on_spike = on_spike;
  config.spike_window = window;
  config.spike_threshold = 6;
  config.max_skips = 2;
  return config;
}

// Losses 2.0, 2.1, ... 2.7 and norms e^0, e^0.2, ... e^1.4: medians 2.35 and e^0.7, median distances 0.2 and 0.4.
SpikeGuard seen_eight(const RunConfig::Stability& config) {
  SpikeGuard guard(config);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(guard.judge(2 + 0.1 * i, std::exp(0.2 * i)).action, StepAction::update);
  return guard;
}

TEST(Median, OfOddAndEvenNumbers) {
  EXPECT_EQ(median_of({}), 0);
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 1, 3, 2}), 2.5);
}

TEST(SpikeGuard, ScoresAreMediansAndMedianDistances) {
  SpikeGuard guard = seen_eight(policy(SpikePolicy::proceed));
  const Judgement judgement = guard.judge(3.5, std::exp(2.7));
  ASSERT_TRUE(judgement.scores);
  EXPECT_NEAR(judgement.scores->loss, (3.5 - 2.35) / (1.4826 * 0.2), 1e-12);
  EXPECT_NEAR(judgement.scores->gradient_norm, (2.7 - 0.7) / (1.4826 * 0.4), 1e-12);
  EXPECT_EQ(judgement.anomaly, Anomaly::none) << "3.9 and 3.4 are below 6";
  EXPECT_EQ(seen_eight(policy(SpikePolicy::proceed)).judge(4.2, 1).anomaly, Anomaly::spike) << "a loss of score 6.2";
  EXPECT_EQ(seen_eight(policy(SpikePolicy::proceed)).judge(2.3, std::exp(4.3)).anomaly, Anomaly::spike)
      << "a norm of score 6.1";
  EXPECT_EQ(seen_eight(policy(SpikePolicy::proceed)).judge(-100, 0).anomaly, Anomaly::none) << "falls are none";
}

// A device that knows the limits alone holds back the same steps.
TEST(SpikeGuard, LimitsAreWhereSpikesBegin) {
  const SpikeGuard guard = seen_eight(policy(SpikePolicy::proceed));
  const UpdateLimits limits = guard.limits();
  EXPECT_NEAR(limits.loss, 2.35 + 6 * 1.4826 * 0.2, 1e-12);
  EXPECT_NEAR(limits.gradient_norm, std::exp(0.7 + 6 * 1.4826 * 0.4), 1e-9);
  const auto anomaly = [&](double loss, double norm) { return SpikeGuard(guard).judge(loss, norm).anomaly; };
  EXPECT_EQ(anomaly(limits.loss, limits.gradient_norm), Anomaly::none);
  EXPECT_EQ(anomaly(std::nextafter(limits.loss, 99), 1), Anomaly::spike);
  EXPECT_EQ(anomaly(2, std::nextafter(limits.gradient_norm, 1e9)), Anomaly::spike);
  EXPECT_EQ(SpikeGuard(policy(SpikePolicy::proceed)).limits().loss, HUGE_VAL) << "nothing is usual yet";
}

TEST(SpikeGuard, JudgesWhenHalfTheWindowIsFull) {
  SpikeGuard guard(policy(SpikePolicy::skip));
  for (int i = 0; i < 4; ++i)
    EXPECT_FALSE(guard.judge(2, 1).scores) << "step " << i;
  const Judgement fifth = guard.judge(2, 1);
  ASSERT_TRUE(fifth.scores);
  EXPECT_EQ(fifth.scores->loss, 0);
}

// A series without scatter must not call every tremor a spike.
TEST(SpikeGuard, SpreadsHaveAFloor) {
  SpikeGuard guard(policy(SpikePolicy::skip));
  for (int i = 0; i < 8; ++i)
    guard.judge(4, 1);
  const Judgement judgement = guard.judge(4.12, 1.1);
  ASSERT_TRUE(judgement.scores);
  EXPECT_NEAR(judgement.scores->loss, 0.12 / 0.04, 1e-9);
  EXPECT_NEAR(judgement.scores->gradient_norm, std::log(1.1) / 0.1, 1e-9);
}

TEST(SpikeGuard, APolicyDecidesWhatBecomesOfAStep) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(seen_eight(policy(SpikePolicy::proceed)).judge(9, 1).action, StepAction::update);
  EXPECT_EQ(seen_eight(policy(SpikePolicy::skip)).judge(9, 1).action, StepAction::skip);
  EXPECT_EQ(seen_eight(policy(SpikePolicy::rollback)).judge(9, 1).action, StepAction::rollback);
  EXPECT_EQ(SpikeGuard(policy(SpikePolicy::proceed)).judge(nan, 1).action, StepAction::give_up)
      << "also in the first step";
  EXPECT_EQ(SpikeGuard(policy(SpikePolicy::skip)).judge(1, nan).action, StepAction::skip);
  EXPECT_EQ(SpikeGuard(policy(SpikePolicy::rollback, 0)).judge(1, 1 / 0.0).action, StepAction::rollback)
      << "with no window, too";
  EXPECT_EQ(seen_eight(policy(SpikePolicy::skip, 0)).judge(1e30, 1e30).action, StepAction::update);
}

TEST(SpikeGuard, SkippedStepsDoNotCountAsUsualAndAreLimited) {
  SpikeGuard guard = seen_eight(policy(SpikePolicy::skip));
  const nlohmann::json before = guard.state();
  EXPECT_EQ(guard.judge(9, 1).action, StepAction::skip);
  EXPECT_EQ(guard.state().at("losses"), before.at("losses"));
  EXPECT_EQ(guard.judge(9, 1).action, StepAction::skip);
  EXPECT_EQ(guard.judge(2.3, 2).action, StepAction::update) << "a good step starts the row anew";
  EXPECT_EQ(guard.judge(9, 1).action, StepAction::skip);
  EXPECT_EQ(guard.judge(9, 1).action, StepAction::skip);
  EXPECT_EQ(guard.skipped(), 4);
  EXPECT_EQ(guard.judge(9, 1).action, StepAction::give_up);
}

TEST(SpikeGuard, ItsStateGoesThroughTextBitForBit) {
  SpikeGuard guard = seen_eight(policy(SpikePolicy::skip));
  guard.judge(9, 1);
  SpikeGuard restored(policy(SpikePolicy::skip));
  restored.restore(nlohmann::json::parse(guard.state().dump()));
  EXPECT_EQ(restored.state(), guard.state());
  const auto a = guard.judge(2.123456789, 1.1).scores;
  const auto b = restored.judge(2.123456789, 1.1).scores;
  EXPECT_EQ(a->loss, b->loss);
  EXPECT_EQ(a->gradient_norm, b->gradient_norm);
  SpikeGuard shorter(policy(SpikePolicy::skip, 4));
  shorter.restore(guard.state());
  shorter.judge(2.3, 2);
  EXPECT_EQ(shorter.state().at("losses").size(), 4U) << "a window that was made shorter";
}

}  // namespace
}  // namespace espalier::test
