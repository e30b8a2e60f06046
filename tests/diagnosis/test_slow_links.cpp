// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Links that the launch found slow.
#include <gtest/gtest.h>

#include "diagnosis/diagnose.hpp"
#include "models/presets.hpp"
#include "tests/diagnosis/named_findings.hpp"
#include "tests/diagnosis/simulated_run.hpp"

using namespace espalier;
using espalier::test::expect_within_20_percent;
using espalier::test::find;
using espalier::test::first;
using espalier::test::SimulatedRun;

namespace {

// From rank 2 to rank 1, where others take 0.1 ms.
void set_slow_link(RecordedRun& run, double seconds) {
  run.facts.links.typical_seconds.fill(1e-4);
  run.facts.links.slow = {{.axis = Axis::dp, .from = 2, .to = 1, .seconds = seconds}};
}

TEST(Diagnose, SlowLinkBetweenReplicas) {
  SimulatedRun simulated(1, 3, 1, 8, {2}, {.reduction = 0.1});
  set_slow_link(simulated.run, 0.1);
  const Diagnosis diagnosis = diagnose(simulated.run);
  ASSERT_EQ(first(diagnosis).cause, Cause::slow_link) << first(diagnosis).title;
  EXPECT_EQ(first(diagnosis).ranks, (std::vector<int>{2, 1}));
  expect_within_20_percent(first(diagnosis).size, 0.1);
  expect_within_20_percent(first(diagnosis).seconds, 0.1);
  EXPECT_EQ(find(diagnosis, Cause::gradient_reduction), nullptr) << "the same seconds twice";
}

// A millisecond a message is not most of an exchange of gigabytes.
TEST(Diagnose, SlowLinkCostsNoMoreThanItsMessages) {
  SimulatedRun simulated(1, 3, 1, 8, {2}, {.reduction = 2});
  set_slow_link(simulated.run, 1.1e-3);
  for (auto& steps : simulated.run.ranks)
    for (StepTimes& step : steps)
      step.bytes_sent[static_cast<std::size_t>(Axis::dp)] = 32u << 20;
  const Diagnosis diagnosis = diagnose(simulated.run);
  EXPECT_EQ(first(diagnosis).cause, Cause::gradient_reduction) << first(diagnosis).title;
  const Finding* const link = find(diagnosis, Cause::slow_link);
  ASSERT_NE(link, nullptr);
  EXPECT_NEAR(link->seconds, 2 * 32 * 1e-3, 1e-9);  // 32 buckets of a MiB
  EXPECT_NEAR(first(diagnosis).seconds, 2 - link->seconds, 1e-9);
}

// Between tensor ranks those of the listed collectives: in each of 8 micro-batches a block sums over two ranks after
// attention and after the MLP, forward and backward. The embedding sums once, the head three times: the largest logits
// and their sums, and backward. Each sum is two passes of the ring.
TEST(Diagnose, SlowLinkBetweenTensorRanksCostsNoMoreThanItsCollectives) {
  const auto cost_with = [](Index layers) {
    SimulatedRun simulated(2, 1, 1, 8, {layers}, {.tensor = 10});
    ModelConfig& model = simulated.run.config.model.shape;
    model = model_preset("byte-1m");
    model.num_layers = layers;
    simulated.run.facts.links.typical_seconds.fill(1e-4);
    simulated.run.facts.links.slow = {{.axis = Axis::tp, .from = 0, .to = 1, .seconds = 1.1e-3}};
    const Diagnosis diagnosis = diagnose(simulated.run);
    const Finding* const link = find(diagnosis, Cause::slow_link);
    return link != nullptr ? link->seconds : 0;
  };
  for (const Index layers : {4, 8})
    EXPECT_NEAR(cost_with(layers), 8.0 * (4.0 * static_cast<double>(layers) + 4) * 2 * 1e-3, 1e-9) << layers;
}

}  // namespace
