// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Slow ranks injected into a simulated run: named first, with their size and with what a step would gain.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/diagnosis/named_findings.hpp"
#include "tests/diagnosis/simulated_run.hpp"

using namespace espalier;
using espalier::test::expect_within_20_percent;
using espalier::test::find;
using espalier::test::first;
using espalier::test::SimulatedRun;

namespace {

TEST(FindSlowRanks, SlowRank) {
  for (const auto& [tensor, data, pipeline] :
       {std::tuple{1, 1, 2}, {1, 2, 1}, {2, 1, 1}, {1, 1, 4}, {2, 2, 4}, {1, 8, 8}})
    for (const double factor : {1.2, 2.0}) {
      SCOPED_TRACE(fmt::format("tensor {}, data {}, pipeline {}, {} times", tensor, data, pipeline, factor));
      const std::vector<Index> layers(static_cast<std::size_t>(pipeline), 2);
      const int slow = tensor * data * pipeline - 1;
      const SimulatedRun simulated(tensor, data, pipeline, 4, layers, {.slow_rank = slow, .slow_factor = factor});
      const SimulatedRun healthy(tensor, data, pipeline, 4, layers);
      const Diagnosis diagnosis = diagnose(simulated.run);
      const Finding& finding = first(diagnosis);
      ASSERT_EQ(finding.cause, Cause::slow_rank) << finding.title;
      EXPECT_EQ(finding.ranks, std::vector<int>{slow});
      expect_within_20_percent(finding.size - 1, factor - 1);
      expect_within_20_percent(finding.seconds, simulated.step_seconds - healthy.step_seconds);
      ASSERT_FALSE(finding.changes.empty());
      expect_within_20_percent(finding.changes.front().gain_seconds, simulated.step_seconds - healthy.step_seconds);
    }
}

void slow_down(RecordedRun& run, std::size_t rank, double factor) {
  for (StepTimes& step : run.ranks[rank])
    for (const Phase phase : {Phase::forward, Phase::backward})
      step.seconds[phase] *= factor;
}

// Replicas wait for each other: a rank of one of them that becomes fast gains what the next slowest leaves.
TEST(FindSlowRanks, SlowRanksOfTwoReplicasGainTogether) {
  for (const double factor : {1.5, 2.0}) {
    SimulatedRun simulated(1, 2, 2, 8, {2, 2});
    slow_down(simulated.run, 0, factor);  // stage 0 of replica 0
    slow_down(simulated.run, 3, 1.5);     // stage 1 of replica 1
    std::vector<Finding> slow = diagnose(simulated.run).findings;
    std::erase_if(slow, [](const Finding& finding) { return finding.cause != Cause::slow_rank; });
    ASSERT_EQ(slow.size(), 2u);
    EXPECT_GT(slow[1].seconds, 0.1);
    EXPECT_NEAR(slow[0].changes.front().gain_seconds, slow[0].seconds - slow[1].seconds, 1e-9) << factor;
    EXPECT_NEAR(slow[1].changes.front().gain_seconds, 0, 1e-9) << factor;
    for (const Finding& finding : slow)
      EXPECT_EQ(finding.evidence.back(),
                fmt::format("with all 2 slow ranks as fast as the others a step gains {:.4g} s", slow[0].seconds));
  }
}

// However roughly it is known how long a stage works, it is known better which of two works longer.
TEST(FindSlowRanks, SlowRankBesideARoughPrediction) {
  SimulatedRun simulated(1, 1, 2, 8, {3, 2}, {.slow_rank = 1, .slow_factor = 1.4});
  simulated.run.config.emulate.forward = 0;  // else it would be known well
  simulated.run.predicted_time->error_share = 0.5;
  const Diagnosis diagnosis = diagnose(simulated.run);
  ASSERT_EQ(first(diagnosis).cause, Cause::slow_rank) << first(diagnosis).title;
  expect_within_20_percent(first(diagnosis).size - 1, 0.4);
}

// A rank that sleeps leaves the others of its host more of it: the prediction knows what it should take.
TEST(FindSlowRanks, SlowRankWhoseNeighboursProfit) {
  for (const auto& [data, pipeline] : {std::pair{2, 1}, {1, 2}})
    for (const bool one_host : {true, false}) {
      SCOPED_TRACE(fmt::format("data {}, pipeline {}, {}", data, pipeline, one_host ? "one host" : "two hosts"));
      const std::vector<Index> layers(static_cast<std::size_t>(pipeline), 2);
      SimulatedRun simulated(1, data, pipeline, 8, layers, {.slow_rank = 1, .slow_factor = 1.5});
      const SimulatedRun healthy(1, data, pipeline, 8, layers);
      for (StepTimes& step : simulated.run.ranks.front())
        for (const Phase phase : {Phase::forward, Phase::backward})
          step.seconds[phase] *= 0.8;
      simulated.run.predicted_time->error_share = 0.1;
      simulated.run.predicted_time->calibrated = true;
      simulated.run.facts.hosts = one_host ? std::vector<std::string>{"a"} : std::vector<std::string>{"a", "b"};
      simulated.run.facts.host_of_rank = {0, one_host ? 0U : 1U};
      const Diagnosis diagnosis = diagnose(simulated.run);
      ASSERT_EQ(first(diagnosis).cause, Cause::slow_rank) << first(diagnosis).title;
      EXPECT_NEAR(first(diagnosis).size, one_host ? 1.5 : 1.5 / 0.8, 1e-6);
      if (one_host)
        expect_within_20_percent(first(diagnosis).seconds, simulated.step_seconds - healthy.step_seconds);
      EXPECT_EQ(diagnosis_text(simulated.run, diagnosis).find("a test predicts") != std::string::npos, one_host);
      simulated.run.predicted_time->error_share = 0.3;
      EXPECT_NEAR(first(diagnose(simulated.run)).size, 1.5 / 0.8, 1e-6) << "within its error the others are right";
      simulated.run.predicted_time->error_share = 0.1;
      simulated.run.predicted_time->calibrated = false;
      EXPECT_NEAR(first(diagnose(simulated.run)).size, 1.5 / 0.8, 1e-6) << "not calibrated";
    }
}

// However the quotients round, a run without a prediction is not held against one.
TEST(FindSlowRanks, SlowRankWithoutAPrediction) {
  for (int i = 0; i < 200; ++i) {
    SimulatedRun simulated(1, 3, 1, 2, {2});
    simulated.run.predicted_time.reset();
    slow_down(simulated.run, 2, 1.2 + 0.00317 * i);
    slow_down(simulated.run, 0, 1 + 0.000113 * i);
    const Diagnosis diagnosis = diagnose(simulated.run);
    const Finding* const slow = find(diagnosis, Cause::slow_rank);
    ASSERT_NE(slow, nullptr);
    EXPECT_THAT(slow->title, testing::HasSubstr("longer than the others for the same work"));
  }
}

TEST(FindSlowRanks, SlowRankOfThreeStagesWithUnevenLayers) {
  const SimulatedRun simulated(1, 1, 3, 6, {3, 3, 2}, {.slow_rank = 2, .slow_factor = 1.6});
  const Diagnosis diagnosis = diagnose(simulated.run);
  ASSERT_EQ(first(diagnosis).cause, Cause::slow_rank) << first(diagnosis).title;
  expect_within_20_percent(first(diagnosis).size - 1, 0.6);
}

// "All ranks" is not said of some: the slow ones have findings of their own.
TEST(FindSlowRanks, SlowRanksAreNotAllRanks) {
  for (const int slow : {1, 2}) {
    SimulatedRun simulated(1, 2 * slow, 1, 4, {4});
    for (int rank = 0; rank < slow; ++rank)
      slow_down(simulated.run, static_cast<std::size_t>(rank), 1.6);
    const Diagnosis diagnosis = diagnose(simulated.run);
    EXPECT_NE(find(diagnosis, Cause::slow_rank), nullptr) << slow;
    EXPECT_EQ(find(diagnosis, Cause::slow_compute), nullptr) << slow;
  }
}

}  // namespace
