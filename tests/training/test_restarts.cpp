// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A run that fails again and again without a new checkpoint ends for good, and says so.
#include <gtest/gtest.h>

#include "tests/training/run_starts.hpp"
#include "training/loop/restarts.hpp"

namespace espalier::test {
namespace {

RunRecord left_by(RunState state, const Restarts& restarts) {
  RunRecord record;
  record.state = state;
  record.details = details_of(restarts);
  return record;
}

TEST(Restarts, CountStartsThatCameNoFurther) {
  EXPECT_EQ(count_restarts(std::nullopt, 0), (Restarts{0, 0}));
  EXPECT_EQ(count_restarts(left_by(RunState::failed, {0, 0}), 0), (Restarts{0, 1}));
  EXPECT_EQ(count_restarts(left_by(RunState::running, {0, 2}), 0), (Restarts{0, 3})) << "killed";
  EXPECT_EQ(count_restarts(left_by(RunState::failed, {0, 2}), 10), (Restarts{10, 0})) << "there was a new checkpoint";
  EXPECT_EQ(count_restarts(left_by(RunState::failed, {10, 2}), 5), (Restarts{5, 3})) << "fallen back to an older one";
  EXPECT_EQ(count_restarts(left_by(RunState::preempted, {10, 2}), 10), (Restarts{10, 0}));
  EXPECT_EQ(count_restarts(left_by(RunState::completed, {10, 2}), 10), (Restarts{10, 0}));
  RunRecord of_an_older_program;
  of_an_older_program.state = RunState::failed;
  EXPECT_EQ(count_restarts(of_an_older_program, 3), (Restarts{3, 0}));
}

// The whole step at this learning rate is lost in fp32: the second one is not finite.
std::vector<std::string> diverging() {
  return {"optimizer.learning_rate=1e30", "optimizer.warmup_steps=0", "optimizer.clip_grad_norm=0"};
}

TEST(Restarts, ThreeInVainEndTheRunUntilSomebodyLooks) {
  const SharedFolder folder("restarts");
  const RunConfig config = config_in(folder, "run", diverging());
  for (int start = 0; start < 4; ++start)
    expect_refusal(ExitCode::numerical, {"the training diverged", "there is no checkpoint to resume from yet"},
                   [&] { start_run(config, {}); });
  std::string before;
  on_root([&] { before = read_file(folder / "run/run.json", ExitCode::data); });
  expect_refusal(ExitCode::no_progress, {"4 launches in a row", "do not requeue", "--retry", "the training diverged"},
                 [&] { start_run(config, {}); });
  on_root([&] { EXPECT_EQ(read_file(folder / "run/run.json", ExitCode::data), before) << "it was refused"; });
  TrainOptions retry;
  retry.retry = true;
  expect_refusal(ExitCode::numerical, {"the training diverged"}, [&] { start_run(config, retry); });
  EXPECT_EQ(start_run(config_in(folder, "run"), {}).outcome, TrainOutcome::completed) << "the count began anew";
}

TEST(Restarts, ANewCheckpointResetsTheCount) {
  const SharedFolder folder("progress");
  for (int start = 0; start < 3; ++start)
    expect_refusal(ExitCode::numerical, {"diverged"}, [&] { start_run(config_in(folder, "run", diverging()), {}); });
  EXPECT_EQ(start_run(config_in(folder, "run"), stop_after(2)).outcome, TrainOutcome::stopped);
  const RunConfig diverges = config_in(folder, "run", diverging());
  for (int start = 0; start < 4; ++start)
    expect_refusal(ExitCode::numerical, {"diverged", "a checkpoint of step 2:", "the same command"},
                   [&] { start_run(diverges, {}); });
  expect_refusal(ExitCode::no_progress, {"after step 2"}, [&] { start_run(diverges, {}); });
}

}  // namespace
}  // namespace espalier::test
