// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "diagnosis/diagnose.hpp"
#include "models/presets.hpp"
#include "planning/price_layout.hpp"
#include "tests/diagnosis/simulated_run.hpp"

using namespace espalier;
using espalier::test::SimulatedRun;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

bool names(const Diagnosis& diagnosis, Cause cause) {
  return std::any_of(diagnosis.findings.begin(), diagnosis.findings.end(),
                     [&](const Finding& finding) { return finding.cause == cause; });
}

TEST(CompareRuns, SlowRankExplainsTheDifference) {
  const SimulatedRun before(1, 2, 4, 8, {2, 2, 2, 2});
  SimulatedRun after(1, 2, 4, 8, {2, 2, 2, 2}, {.slow_rank = 5, .slow_factor = 1.5});
  after.run.facts.cpu = "another one";
  const Diagnosis diagnosis = diagnose(after.run, &before.run);
  ASSERT_TRUE(diagnosis.comparison);
  EXPECT_EQ(diagnosis.comparison->explained_by, Cause::slow_rank);
  EXPECT_NEAR(diagnosis.comparison->after / diagnosis.comparison->before, before.step_seconds / after.step_seconds,
              1e-6);
  ASSERT_EQ(diagnosis.comparison->differences.size(), 1u);
  EXPECT_EQ(diagnosis.comparison->differences.front().what, "cpu");
}

// What was too small to be told before was not nothing: the sum of gradients grows by 1 % of a step, reading by 2.5 %.
TEST(CompareRuns, WhatWasSmallBeforeHasGrownByLess) {
  const double step = SimulatedRun(1, 2, 1, 8, {2}).step_seconds;
  const SimulatedRun before(1, 2, 1, 8, {2}, {.reduction = 0.019 * step});
  const SimulatedRun after(1, 2, 1, 8, {2}, {.stall = 0.025 * step, .reduction = 0.03 * step});
  const Diagnosis diagnosis = diagnose(after.run, &before.run);
  ASSERT_TRUE(names(diagnosis, Cause::gradient_reduction));
  ASSERT_TRUE(diagnosis.comparison);
  EXPECT_EQ(diagnosis.comparison->explained_by, Cause::data_stall) << diagnosis.comparison->explanation;
}

// Each of two slow ranks of a pipeline is priced as if it were alone; their sum is more than was lost.
TEST(CompareRuns, FindingsOfOneCauseAreNotSummed) {
  const SimulatedRun before(1, 1, 4, 8, {2, 2, 2, 2});
  SimulatedRun after(1, 1, 4, 8, {2, 2, 2, 2}, {.slow_rank = 1, .slow_factor = 1.5});
  for (StepTimes& times : after.run.ranks[2])
    for (const Phase phase : {Phase::forward, Phase::backward})
      times.seconds[phase] *= 1.5;
  for (auto& rank : after.run.ranks)
    for (StepTimes& times : rank)
      times.step_seconds *= 1.2;
  for (StepRecord& line : after.run.steps)
    line.times.step_seconds *= 1.2;
  const Diagnosis diagnosis = diagnose(after.run, &before.run);
  ASSERT_EQ(diagnosis.comparison->explained_by, Cause::slow_rank);
  double max_seconds = 0;
  for (const Finding& finding : diagnosis.findings)
    if (finding.cause == Cause::slow_rank)
      max_seconds = std::max(max_seconds, finding.seconds);
  const double lost = after.run.steps.back().times.step_seconds - before.step_seconds;
  EXPECT_THAT(diagnosis.comparison->explanation,
              HasSubstr(fmt::format("slow_rank explains {:.0f} % of the loss", 100 * max_seconds / lost)));
}

// What explains most first; the text leaves out what no line of it would explain.
TEST(CompareRuns, DifferencesAreRankedAndTheTextIsCut) {
  const SimulatedRun before(1, 2, 1, 8, {2});
  SimulatedRun after(1, 2, 1, 4, {2});
  after.run.facts.cpu = "another one";
  after.run.facts.program = "espalier 2";
  after.run.config_text =
      "[checkpoint]\ninterval = 7\n[batch]\nmicro_batch_size = 3\n[data]\nseed = 1\n[optimizer]\nlearning_rate = "
      "0.06\n[model]\nnum_layers = 4\n";
  for (int key = 0; key < 9; ++key)
    after.run.config_text += fmt::format("key_{} = 1\n", key);
  const Diagnosis diagnosis = diagnose(after.run, &before.run);
  std::vector<std::string> names;
  for (const Difference& each : diagnosis.comparison->differences)
    names.push_back(each.what);
  ASSERT_EQ(names.size(), 18u);
  EXPECT_EQ(names[0], "model.key_0");
  EXPECT_EQ(names[9], "model.num_layers");
  EXPECT_EQ(std::vector(names.begin() + 10, names.end()),
            (std::vector<std::string>{"micro-batches of a replica", "tokens of a step", "batch.micro_batch_size", "cpu",
                                      "program", "optimizer.learning_rate", "checkpoint.interval", "data.seed"}));
  const std::string text = diagnosis_text(after.run, diagnosis);
  EXPECT_THAT(text, HasSubstr("    tokens of a step: 2048 (was 4096)\n    and 6 more (--json has all)\n"));
  EXPECT_THAT(diagnosis_json(after.run, diagnosis), HasSubstr("data.seed"));
}

TEST(CompareRuns, SameRunHasNothingToExplain) {
  const SimulatedRun run(1, 2, 4, 8, {2, 2, 2, 2});
  const Diagnosis diagnosis = diagnose(run.run, &run.run);
  ASSERT_TRUE(diagnosis.comparison);
  EXPECT_TRUE(diagnosis.comparison->explanation.empty());
  EXPECT_TRUE(diagnosis.comparison->differences.empty());
}

// 30 billion parameters as the planner prices them: what a run of this layout would leave.
RecordedRun priced_run(const PlanProblem& problem, const Layout& layout, double learning_rate) {
  const LayoutPrice price = price_layout(problem, layout);
  RecordedRun run;
  run.directory = fmt::format("30b-on-{}", layout.num_devices());
  run.record.state = RunState::completed;
  RunConfig& config = run.config;
  config.layout.tensor = layout.tensor;
  config.layout.data = layout.data;
  config.layout.pipeline = layout.pipeline;
  config.layout.micro_batch = layout.micro_batch;
  config.layout.global_batch = layout.global_batch;
  config.sequence_length = problem.sequence_length;
  config.model.shape.num_layers = problem.model.num_layers;
  config.layout.layers.assign(static_cast<std::size_t>(layout.pipeline), problem.model.num_layers / layout.pipeline);
  config.layout.precision = Precision::bf16;
  config.optimizer.clip_grad_norm = 1;
  config.optimizer.learning_rate = learning_rate;
  config.optimizer.warmup_steps = 500;
  StepTimes times{.step_seconds = price.step_seconds, .seconds = price.seconds};
  run.ranks.resize(static_cast<std::size_t>(layout.num_devices()));
  for (Index step = 1; step <= 200; ++step) {
    times.step = step;
    for (auto& rank : run.ranks)
      rank.push_back(times);
    StepRecord line;
    line.loss = 6 - 0.01 * static_cast<double>(step);
    line.gradient_norm = 1;
    line.learning_rate = learning_rate;
    line.times = times;
    run.steps.push_back(line);
  }
  return run;
}

// Scenario (d): 30 B on 64 GPUs. The one replica on 32 of them was doubled, and so were its micro-batches; now a rank
// trains fewer tokens per second, and the loss spikes. Gradients that cross a plain network, and a batch four times as
// large at the same learning rate, are why.
TEST(CompareRuns, ReplicasAndMicrobatchesDoubled) {
  PlanProblem problem;
  problem.model = model_preset("gpt-30b");
  problem.cluster = cluster_preset("a100-80:8");
  problem.cluster.network.bandwidth = problem.cluster.network.alone = 3e9;
  problem.implementation = espalier_implementation();
  problem.sequence_length = 2048;
  Layout layout;
  layout.tensor = 8;
  layout.pipeline = 4;
  layout.global_batch = 16;
  layout.recompute = Recompute::full;
  layout.sequence_parallel = true;
  const RecordedRun before = priced_run(problem, layout, 1.5e-4);
  layout.data = 2;
  layout.global_batch = 64;
  RecordedRun after = priced_run(problem, layout, 1.5e-4);
  for (const std::size_t step : {80u, 140u, 141u})
    after.steps[step].loss += 2;
  const Diagnosis diagnosis = diagnose(after, &before);
  ASSERT_TRUE(diagnosis.comparison);
  EXPECT_LT(diagnosis.comparison->after, 0.97 * diagnosis.comparison->before);
  EXPECT_EQ(diagnosis.comparison->explained_by, Cause::gradient_reduction) << diagnosis_text(after, diagnosis);
  const auto stability = std::find_if(diagnosis.findings.begin(), diagnosis.findings.end(), [](const Finding& finding) {
    return concern_of(finding.cause) == Concern::stability;
  });
  ASSERT_NE(stability, diagnosis.findings.end());
  EXPECT_EQ(stability->cause, Cause::effective_batch);
  EXPECT_EQ(stability->size, 4);
  EXPECT_THAT(stability->changes.front().setting, StartsWith("optimizer.learning_rate = 0.0003,"));
  EXPECT_TRUE(names(diagnosis, Cause::gradient_reduction));
  EXPECT_TRUE(names(diagnosis, Cause::loss_spike));
  // A batch that has just grown fourfold, and is suspected of the spikes, is not to be doubled for speed.
  for (const Finding& finding : diagnosis.findings)
    for (const Change& change : finding.changes) {
      EXPECT_FALSE(change.grows_batch) << finding.title;
      if (concern_of(finding.cause) == Concern::time) {
        EXPECT_THAT(change.setting, testing::Not(HasSubstr("global_batch_size"))) << finding.title;
      }
    }
  const Diagnosis alone = diagnose(after);
  EXPECT_TRUE(std::ranges::any_of(alone.findings, [](const Finding& finding) {
    return std::ranges::any_of(finding.changes, &Change::grows_batch);
  })) << "nothing would have been left out";
}

// A rate that was scaled with the batch needs no other; a batch that shrank is had back with more micro-batches.
TEST(CompareRuns, RateThatFollowsTheBatchIsLeftAlone) {
  const SimulatedRun before(1, 2, 1, 8, {2});
  SimulatedRun after(1, 2, 1, 2, {2});
  std::vector<Finding> findings = find_effective_batch(before.run, after.run, false);
  ASSERT_EQ(findings.size(), 1u);
  ASSERT_EQ(findings[0].changes.size(), 2u);
  EXPECT_THAT(findings[0].changes[0].setting, StartsWith("optimizer.learning_rate = 0.0005"));
  EXPECT_THAT(findings[0].changes[1].setting, HasSubstr("more micro-batches"));
  EXPECT_THAT(findings[0].evidence[1],
              HasSubstr("between 0.5 times (the square root of the ratio of the batches) and 0.25 times (the ratio)"));
  const double risk = findings[0].risk;
  after.run.config.optimizer.learning_rate = 0.0005;
  findings = find_effective_batch(before.run, after.run, false);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_LT(findings[0].risk, risk);
  ASSERT_EQ(findings[0].changes.size(), 1u);
  EXPECT_THAT(findings[0].changes[0].setting, StartsWith("batch.global_batch_size"));
}

// A batch that stays is no cause, whatever spikes.
TEST(CompareRuns, SameBatchIsNoCause) {
  const SimulatedRun before(1, 2, 1, 8, {2});
  SimulatedRun after(1, 2, 1, 8, {2});
  after.run.steps[15].loss += 5;
  const Diagnosis diagnosis = diagnose(after.run, &before.run);
  EXPECT_FALSE(names(diagnosis, Cause::effective_batch));
  EXPECT_TRUE(names(diagnosis, Cause::loss_spike));
}

}  // namespace
