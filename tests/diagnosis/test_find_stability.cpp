// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "diagnosis/find_end.hpp"
#include "diagnosis/find_stability.hpp"
#include "tests/diagnosis/loss_runs.hpp"

using namespace espalier;
using espalier::test::calm_run;
using espalier::test::run_with_losses;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace {

TEST(FindStability, CalmRunHasNone) { EXPECT_TRUE(find_instability(calm_run(200)).empty()); }

TEST(FindStability, SpikesAreCountedOnceEach) {
  RecordedRun run = calm_run(200);
  for (const std::size_t i : {60u, 61u, 62u, 150u})
    run.steps[i].loss += 1.5;
  run.steps[60].gradient_norm = 25;
  const std::vector<Finding> findings = find_instability(run);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].cause, Cause::loss_spike);
  EXPECT_THAT(findings[0].title, HasSubstr("2 spikes"));
  EXPECT_THAT(findings[0].evidence.front(), HasSubstr("at steps 61, 151"));
  EXPECT_EQ(findings[1].cause, Cause::gradient_spike);
  EXPECT_NEAR(findings[1].size, 25, 5);
}

TEST(FindStability, EarlySpikeIsComparedWithTheStepsThatThereAre) {
  RecordedRun run = calm_run(40);
  run.steps[12].loss += 1.5;
  const std::vector<Finding> findings = find_instability(run);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_THAT(findings[0].evidence.back(), HasSubstr("above the 12 steps before it"));
}

TEST(FindStability, LossThatIsNoNumber) {
  RecordedRun run = calm_run(50);
  run.steps.back().loss = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Finding> findings = find_instability(run);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings.front().cause, Cause::not_finite);
}

TEST(FindStability, LossThatExplodesEarly) {
  const RecordedRun run = run_with_losses({5.0, 4.9, 5.2, 9, 22, 31, 40});
  const std::vector<Finding> findings = find_instability(run);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings.front().cause, Cause::divergence);
  EXPECT_NEAR(findings.front().size, 31 / 5.0, 1e-9);
  EXPECT_EQ(findings.front().title, "the training diverges, its loss rises: 5 at step 1, 40 at step 7");
  EXPECT_EQ(findings.front().changes.front().setting, "optimizer.learning_rate = 0.0001 (now 0.001)");
  EXPECT_TRUE(find_instability(run_with_losses({5, 4.8, 4.9, 4.7, 4.6, 4.5, 20})).empty()) << "one spike is none";
  EXPECT_TRUE(find_instability(run_with_losses({5, 9})).empty()) << "two steps tell nothing";
}

TEST(FindStability, LossThatNeverFalls) {
  EXPECT_TRUE(find_instability(run_with_losses(std::vector<double>(99, 5.0))).empty());
  RecordedRun run = run_with_losses(std::vector<double>(120, 5.0));
  EXPECT_TRUE(find_instability(run).empty()) << "it has 100 steps of warmup";
  run.config.optimizer.warmup_steps = 10;
  ASSERT_EQ(find_instability(run).size(), 1u);
  EXPECT_EQ(find_instability(run).front().cause, Cause::divergence);
  EXPECT_THAT(find_instability(run).front().title, HasSubstr("does not fall"));
}

TEST(FindStability, LossScaleThatCollapses) {
  RecordedRun run = calm_run(100);
  run.config.layout.precision = Precision::fp16;
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    run.steps[i].loss_scale = i < 50 ? 65536 : std::max(1.0, 65536 / std::pow(2, static_cast<double>(i) - 49));
    run.steps[i].skipped_steps = i < 50 ? 0 : static_cast<Index>(i) - 49;
  }
  const std::vector<Finding> findings = find_instability(run);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].cause, Cause::loss_scale_collapse);
  EXPECT_EQ(findings[0].size, 65536);
  EXPECT_EQ(findings[1].cause, Cause::skipped_steps);
  EXPECT_NEAR(findings[1].share, 0.5, 0.02);
}

// A scale that may go no lower than where it starts has not fallen.
TEST(FindStability, ConstantLossScaleIsNoCollapse) {
  RecordedRun run = calm_run(100);
  run.config.layout.precision = Precision::fp16;
  run.config.precision.loss_scale.initial = run.config.precision.loss_scale.minimum = 128;
  for (StepRecord& step : run.steps)
    step.loss_scale = 128;
  EXPECT_TRUE(find_instability(run).empty());
  run.steps[50].loss_scale = 256;
  ASSERT_EQ(find_instability(run).size(), 1u);
  EXPECT_EQ(find_instability(run).front().cause, Cause::loss_scale_collapse);
}

// Of the first step it is known that nothing was skipped before; of a record that begins later it is not.
TEST(FindStability, SkipOfTheFirstStepCounts) {
  RecordedRun run = calm_run(10);
  run.config.layout.precision = Precision::fp16;
  run.config.precision.loss_scale.initial = 1;
  for (StepRecord& step : run.steps)
    step.skipped_steps = 1;
  ASSERT_EQ(find_instability(run).size(), 1u);
  EXPECT_EQ(find_instability(run).front().title, "1 of 10 steps were skipped");
  for (StepRecord& step : run.steps)
    step.times.step += 40;
  EXPECT_TRUE(find_instability(run).empty());
}

// The spike guard skips in every precision, and of its skips bf16 is no cure.
TEST(FindStability, StepsSkippedAsSpikesAreCountedInEveryPrecision) {
  for (const Precision compute : {Precision::bf16, Precision::fp32, Precision::fp16}) {
    RecordedRun run = calm_run(100);
    run.config.layout.precision = compute;
    run.config.precision.loss_scale.initial = run.config.precision.loss_scale.minimum = 0.5;  // far from a collapse
    for (std::size_t i = 0; i < run.steps.size(); ++i) {
      run.steps[i].skipped_steps = static_cast<Index>(i) / 5;
      run.steps[i].anomaly = i % 5 == 0 ? "spike" : "";
    }
    const std::vector<Finding> findings = find_instability(run);
    ASSERT_EQ(findings.size(), 1u) << to_string(compute);
    EXPECT_EQ(findings[0].cause, Cause::skipped_steps);
    EXPECT_NEAR(findings[0].size, 0.2, 0.02);
    ASSERT_EQ(findings[0].changes.size(), 1u);
    EXPECT_THAT(findings[0].changes[0].setting, StartsWith("optimizer."));
  }
}

RecordedRun dead_run() {
  RecordedRun run = calm_run(7);
  run.record.state = RunState::running;
  run.record.pid = 4711;
  run.record.host = "node07";
  run.life = Life::gone;
  for (int rank = 0; rank < 3; ++rank) {
    ProgressWriter writer;
    writer.set_rank(rank, 3);
    writer.step_begins(8);
    writer.operation_begins(4, "F2", 0, 2);
    if (rank != 1) {
      const int peer = 1;
      writer.wait_begins("receive of activations", "pp", 12, std::span<const int>(&peer, 1));
    }
    run.rank_progress.push_back(writer.current());
    run.read_at = run.rank_progress.back().alive;
  }
  return run;
}

TEST(FindEnd, NamesTheRankThatOthersWaitedFor) {
  const RecordedRun run = dead_run();
  const std::vector<Finding> findings = find_end(run);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings.front().cause, Cause::died);
  EXPECT_THAT(findings.front().title, HasSubstr("node07"));
  EXPECT_THAT(findings.front().title, HasSubstr("likely culprit: rank 1"));
  EXPECT_THAT(findings.front().evidence.front(), HasSubstr("7"));
}

TEST(FindEnd, RunOfAnotherHostIsNotCalledDead) {
  RecordedRun run = dead_run();
  run.life = Life::alive;
  EXPECT_TRUE(find_end(run).empty()) << "its ranks moved a moment ago";
  run.last_sign_of_life = run.read_at;
  run.read_at += 120;
  ASSERT_EQ(find_end(run).size(), 1u);
  EXPECT_EQ(find_end(run).front().cause, Cause::hangs);
  run.last_sign_of_life += 100;  // a line of metrics.jsonl: the ranks' progress has not reached this host
  EXPECT_TRUE(find_end(run).empty());
  run.life = Life::silent;
  ASSERT_EQ(find_end(run).size(), 1u);
  const Finding silent = find_end(run).front();
  EXPECT_EQ(silent.cause, Cause::silent);
  EXPECT_THAT(silent.title, Not(HasSubstr("killed")));
  EXPECT_THAT(silent.title, HasSubstr("cannot be seen from here (process 4711 on node07"));
}

TEST(FindEnd, FailedRunTellsItsCauseAndCompletedOnesHaveNone) {
  RecordedRun run = calm_run(7);
  EXPECT_TRUE(find_end(run).empty());
  run.record.state = RunState::preempted;
  EXPECT_TRUE(find_end(run).empty());
  run.record.state = RunState::failed;
  run.record.cause = "the training diverged\n  where: step 8";
  const std::vector<Finding> findings = find_end(run);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings.front().cause, Cause::failed);
  EXPECT_THAT(findings.front().title, StartsWith("the run failed: the training diverged"));
}

// What is said to happen next is what would: from a checkpoint that is there, saves that are set, no second divergence.
TEST(FindEnd, TellsWhatTheSameCommandWouldDo) {
  RecordedRun run = dead_run();
  const auto advice = [&] { return find_end(run).front().changes.back().setting; };
  EXPECT_EQ(advice(),
            "the same command starts again at step 1, because there is no complete checkpoint; "
            "checkpoint.interval (now 0) saves during the run");
  run.config.checkpoint.interval = 5;
  run.newest_checkpoint = 5;
  EXPECT_EQ(advice(),
            "the same command resumes from the checkpoint of step 5; a checkpoint.interval below 5 loses fewer "
            "steps");
  run.life = Life::ended;
  run.record.state = RunState::failed;
  run.record.exit_code = static_cast<int>(ExitCode::numerical);
  EXPECT_THAT(advice(), HasSubstr("would diverge again"));
  EXPECT_THAT(advice(), Not(HasSubstr("interval")));
}

}  // namespace
