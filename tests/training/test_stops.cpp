// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A request to stop, wherever a run is: what is saved, what is validated, and what the next start makes of it.
#include <gtest/gtest.h>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/records/run_directory.hpp"
#include "tests/training/run_starts.hpp"

namespace espalier::test {
namespace {

RunConfig validated_config(const SharedFolder& folder, std::vector<std::string> more = {}) {
  more.push_back("data.validation=[\"" + (folder / "tokens.bin").string() + "\"]");
  return config_in(folder, "run", more);
}

bool is_validating() { return std::string(world().rank_progress().current().operation.data()) == "validation"; }

nlohmann::json last_line(const RunConfig& config) {
  return read_metrics(Path(config.run.directory) / "metrics.jsonl").back();
}

Index newest_checkpoint(const RunConfig& config) {
  const std::vector<CheckpointEntry> found = find_checkpoints(Path(config.run.directory) / "checkpoints");
  return !found.empty() && found.front().complete ? found.front().step : -1;
}

// To the last rank alone, in the middle of the validation after `step`.
TEST(Stops, AreHeardInAValidation) {
  const SharedFolder whole_folder("stops_whole");
  const RunConfig whole = validated_config(whole_folder, {"run.eval_interval=3"});
  const Start undisturbed = start_run(whole, {});
  EXPECT_TRUE(world().rank() != 0 || undisturbed.validations.size() == 3);
  for (const Index step : {3, 8})
    for (const char* const async : {"false", "true"}) {
      const SharedFolder folder("stops_validation");
      const RunConfig config =
          validated_config(folder, {"run.eval_interval=3", fmt::format("checkpoint.async={}", async)});
      int asked = 0;
      const Start stopped = start_run(config, {}, [&]() -> std::string {
        if (!is_validating() || world().rank_progress().current().step != step || world().rank() != world().size() - 1)
          return "";
        if (++asked < 3)  // all ranks have begun when they have agreed that there is nothing to stop for
          return "";
        EXPECT_EQ(last_line(config).at("step"), step) << "the step's line comes first";
        EXPECT_TRUE(step < 8 || newest_checkpoint(config) == 8) << "the last checkpoint comes first";
        return "SIGTERM";
      });
      EXPECT_EQ(stopped.outcome, TrainOutcome::stopped);
      EXPECT_TRUE(stopped.says("stop requested, saving: ", "asked to stop by SIGTERM"));
      EXPECT_EQ(newest_checkpoint(config), step);
      EXPECT_EQ(last_line(config).at("step"), step);
      EXPECT_FALSE(last_line(config).contains("validation_loss"));
      EXPECT_EQ(read_run_record(config.run.directory)->state, RunState::preempted);
      const Start again = start_run(config, {});
      EXPECT_EQ(again.outcome, TrainOutcome::completed);
      EXPECT_EQ(losses(config), losses(whole));
      EXPECT_EQ(last_line(config).at("validation_loss"), last_line(whole).at("validation_loss"));
      EXPECT_TRUE(start_run(config, {}).validations.empty()) << "it is known";
      barrier(world());
    }
}

TEST(Stops, NothingIsValidatedAfterARequest) {
  const SharedFolder folder("stops_without");
  const RunConfig config = validated_config(folder, {"run.eval_interval=1"});
  const Start first = start_run(config, stop_after(2));
  EXPECT_EQ(first.outcome, TrainOutcome::stopped);
  EXPECT_TRUE(first.says("stop requested, saving: stopped after 2 steps"));
  EXPECT_TRUE(world().rank() != 0 || first.validations.size() == 1);
  EXPECT_FALSE(last_line(config).contains("validation_loss"));
  EXPECT_EQ(newest_checkpoint(config), 2);
  RunConfig short_time = config;
  short_time.run.max_duration = 1e-9;
  const Start second = start_run(short_time, {});
  EXPECT_EQ(second.outcome, TrainOutcome::stopped);
  EXPECT_TRUE(second.says("run.max_duration is over"));
  EXPECT_EQ(newest_checkpoint(config), 3) << "a step each launch: it does come further";
}

// A launch that only has to validate and has no time for it must not be repeated for ever.
TEST(Stops, ALaunchThatComesNoFurtherCounts) {
  const SharedFolder folder("stops_in_vain");
  const RunConfig config = validated_config(folder);
  const auto in_validation = [&]() -> std::string { return is_validating() ? "SIGTERM" : ""; };
  for (int launch = 0; launch < 5; ++launch)
    EXPECT_EQ(start_run(config, {}, in_validation).outcome, TrainOutcome::stopped);
  expect_refusal(ExitCode::no_progress, {"do not requeue"}, [&] { start_run(config, {}, in_validation); });
}

TEST(Stops, BeforeTheRunBeginsLeaveNothing) {
  const SharedFolder folder("stops_early");
  const RunConfig config = validated_config(folder);
  const Start stopped =
      start_run(config, {}, [&]() -> std::string { return world().rank() == world().size() - 1 ? "SIGINT" : ""; });
  EXPECT_EQ(stopped.outcome, TrainOutcome::not_begun);
  EXPECT_TRUE(stopped.says("stop requested, nothing to save: ", "asked to stop by SIGINT"));
  EXPECT_FALSE(std::filesystem::exists(config.run.directory));
  EXPECT_EQ(start_run(config, {}).outcome, TrainOutcome::completed);
}

// Asked for in a step, it is this step that is saved, not the one after.
TEST(Stops, EndTheStepThatTheyComeIn) {
  const SharedFolder folder("stops_step");
  const RunConfig config = validated_config(folder);
  const Start stopped = start_run(
      config, {}, [&]() -> std::string { return world().rank_progress().current().step == 3 ? "SIGUSR1" : ""; });
  EXPECT_EQ(stopped.outcome, TrainOutcome::stopped);
  EXPECT_EQ(newest_checkpoint(config), 3);
}

}  // namespace
}  // namespace espalier::test
