// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Stopping and going on gives the bits of a run that was never stopped.
#include <gtest/gtest.h>

#include <fstream>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/records/run_directory.hpp"
#include "tests/training/run_starts.hpp"

namespace espalier::test {
namespace {

TEST(Resume, AtAnyStepGivesTheBitsOfAnUninterruptedRun) {
  const SharedFolder folder("resume");
  const RunConfig whole = config_in(folder, "whole");
  EXPECT_EQ(start_run(whole, {}).outcome, TrainOutcome::completed);
  const std::vector<std::string> wanted = losses(whole);
  ASSERT_EQ(wanted.size(), 8U);
  for (int stop = 1; stop < 8; ++stop) {
    const RunConfig config = config_in(folder, fmt::format("stopped-{}", stop));
    EXPECT_EQ(start_run(config, stop_after(stop)).outcome, TrainOutcome::stopped);
    EXPECT_EQ(start_run(config, {}).outcome, TrainOutcome::completed);
    EXPECT_EQ(losses(config), wanted) << "stopped after step " << stop;
  }
}

TEST(Resume, StepsAfterTheCheckpointAreTakenAgain) {
  const SharedFolder folder("again");
  const RunConfig config = config_in(folder, "run", {"checkpoint.interval=2", "checkpoint.keep_last=5"});
  start_run(config, {});
  const std::vector<std::string> wanted = losses(config);
  if (world().rank() == 0) {  // as after a crash: the last checkpoints are gone or torn
    std::filesystem::remove_all(folder / "run/checkpoints/step-00000008");
    std::filesystem::resize_file(folder / "run/checkpoints/step-00000006/rank-00000.h5", 1000);
  }
  barrier(world());
  const Start again = start_run(config, {});
  EXPECT_EQ(losses(config), wanted);
  EXPECT_TRUE(again.says("passing over", "step-00000006")) << "the torn checkpoint must be named";
}

TEST(Resume, DamagedDataFallBackToTheOlderCheckpoint) {
  const SharedFolder folder("damaged");
  const RunConfig config = config_in(folder, "run", {"checkpoint.interval=4"});
  start_run(config, {});
  const std::vector<std::string> wanted = losses(config);
  if (world().rank() == 0) {
    std::fstream file(folder / "run/checkpoints/step-00000008/rank-00000.h5",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(
        std::filesystem::file_size(folder / "run/checkpoints/step-00000008/rank-00000.h5") / 2));
    file.put('\x5a');
    file.put('\xa5');
  }
  barrier(world());
  start_run(config, {});
  EXPECT_EQ(losses(config), wanted);
}

TEST(Resume, NeverStartsOverSilently) {
  const SharedFolder folder("never");
  const RunConfig config = config_in(folder, "run");
  start_run(config, {});
  expect_refusal(ExitCode::usage, {"--resume never", "the newest"}, [&] {
    start_run(config, TrainOptions{"never", "", 0});
  });
  if (world().rank() == 0)
    for (const CheckpointEntry& entry : find_checkpoints(folder / "run/checkpoints")) {
      std::fstream file(entry.path / "rank-00000.h5", std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(entry.path / "rank-00000.h5") / 2));
      file << "damaged beyond repair, every checkpoint of them";
    }
  barrier(world());
  expect_refusal(ExitCode::checkpoint, {"none of the run's checkpoints can be used"}, [&] { start_run(config, {}); });
}

// A run that was killed before its first save left metrics and a config: those of another are not written over.
TEST(Resume, ADirectoryOfAnotherRunWithoutCheckpointsIsRefused) {
  const SharedFolder folder("other_run");
  const RunConfig first = config_in(folder, "run");
  start_run(first, {});
  const std::vector<std::string> wanted = losses(first);
  if (world().rank() == 0)
    std::filesystem::remove_all(folder / "run/checkpoints");
  forget_good_end(folder / "run");
  const RunConfig other = config_in(folder, "run", {"model.hidden_size=48", "run.seed=2"});
  expect_refusal(ExitCode::usage,
                 {"the run directory belongs to a run with another config", "model.hidden_size: 32 -> 48",
                  "run.seed: 1 -> 2", "its metrics, of 8 steps", "--resume never"},
                 [&] { start_run(other, {}); });
  const RunConfig donor = config_in(folder, "donor", {"model.hidden_size=48"});
  start_run(donor, {});
  expect_refusal(ExitCode::usage, {"belongs to a run with another config", "model.hidden_size: 32 -> 48"}, [&] {
    start_run(config_in(folder, "run", {"model.hidden_size=48"}), TrainOptions{folder / "donor", "", 0});
  });
  EXPECT_EQ(losses(first), wanted) << "refused starts left them";
  const Start again = start_run(config_in(folder, "run", {"optimizer.weight_decay=0.2"}), stop_after(1));
  EXPECT_TRUE(again.says("no checkpoint to resume from after 8 steps: starts over"));
  EXPECT_TRUE(again.says("config changed: optimizer.weight_decay = 0.2"));
  EXPECT_EQ(read_metrics(folder / "run/metrics.abandoned.jsonl").size(), 8U) << "nothing is lost";
  if (world().rank() == 0)
    std::filesystem::remove_all(folder / "run/checkpoints");
  barrier(world());
  EXPECT_TRUE(start_run(other, TrainOptions{"never", "", 0}).says("config changed: run.seed = 2 (was 1)"));
  EXPECT_EQ(losses(other).size(), 8U);
}

// However often: no start without a checkpoint writes over what those before it have recorded.
TEST(Resume, RecordsOfEachEarlierStartAreKept) {
  const SharedFolder folder("abandoned");
  const RunConfig config = config_in(folder, "run", {"run.trace_steps=1", "run.trace_first_step=1"});
  for (const int start : {1, 2, 3}) {
    const Start again = start_run(config, stop_after(start));
    EXPECT_TRUE(start == 1 || again.says("the records of the earlier launch are kept as metrics.abandoned"));
    if (world().rank() == 0)
      std::filesystem::remove_all(folder / "run/checkpoints");
    forget_good_end(folder / "run");
  }
  EXPECT_EQ(read_metrics(folder / "run/metrics.abandoned.jsonl").size(), 1U);
  EXPECT_EQ(read_metrics(folder / "run/metrics.abandoned-2.jsonl").size(), 2U);
  EXPECT_EQ(read_metrics(folder / "run/metrics.jsonl").size(), 3U);
  for (const char* const name : {"trace.abandoned", "trace.abandoned-2", "trace"})
    EXPECT_TRUE(std::filesystem::exists(folder / "run" / name / "trace.json")) << name;
  if (world().size() == 1)
    return;
  const std::string rank = fmt::format("rank-{:05}.jsonl", world().rank());
  EXPECT_EQ(read_metrics(folder / "run/ranks.abandoned" / rank).size(), 1U);
  EXPECT_EQ(read_metrics(folder / "run/ranks.abandoned-2" / rank).size(), 2U);
  EXPECT_EQ(read_metrics(folder / "run/ranks" / rank).size(), 3U);
}

// What a run has saved is looked for, not replaced: neither a completed one nor a stopped one begins at step 0.
TEST(Resume, ARunWhoseCheckpointsAreGoneIsRefused) {
  const SharedFolder folder("purged");
  const RunConfig config = config_in(folder, "run");
  start_run(config_in(folder, "donor"), {});
  for (const TrainOptions& options : {TrainOptions{}, stop_after(3)}) {
    start_run(config, {"never", "", options.stop_after});
    const std::vector<std::string> before = losses(config);
    if (world().rank() == 0)
      std::filesystem::remove_all(folder / "run/checkpoints");
    barrier(world());
    for (const TrainOptions& again : {TrainOptions{}, init_from(folder / "donor")})
      expect_refusal(ExitCode::checkpoint, {"gone", "no checkpoint; run.json says", "--resume never"},
                     [&] { start_run(config, again); });
    EXPECT_EQ(losses(config), before);
  }
  EXPECT_TRUE(start_run(config, {"never", "", 0}).says("starts over"));
}

TEST(Resume, NothingLeftToDoLeavesConfigAndFiguresOfTheSteps) {
  const SharedFolder folder("nothing_left");
  const RunConfig config = config_in(folder, "run");
  start_run(config, {});
  // Only the record of the start itself changes.
  const auto texts = [&] {
    nlohmann::json details = read_run_record(folder / "run")->details;
    details.erase("restarts");
    return std::vector{read_file(folder / "run/config.toml", ExitCode::data),
                       read_file(folder / "run/prediction.json", ExitCode::data), details.dump(1)};
  };
  const std::vector<std::string> before = texts();
  barrier(world());
  RunConfig shorter = config_in(folder, "run", {"batch.micro_batch_size=1"});
  shorter.run.steps = 3;
  EXPECT_TRUE(start_run(shorter, {}).says("nothing left to do", "run.steps = 3"));
  EXPECT_EQ(texts(), before);
}

TEST(Resume, RefusesAnotherModelAndLogsWhatMayChange) {
  const SharedFolder folder("changed");
  start_run(config_in(folder, "run"), stop_after(2));
  expect_refusal(ExitCode::usage, {"another config", "model.hidden_size: 32 -> 48"},
                 [&] { start_run(config_in(folder, "run", {"model.hidden_size=48"}), {}); });
  const Start longer = start_run(config_in(folder, "run", {"checkpoint.interval=3"}), {});
  EXPECT_TRUE(longer.says("config changed", "checkpoint.interval = 3"));
  EXPECT_FALSE(may_change_on_resume("model.hidden_size"));
  EXPECT_FALSE(may_change_on_resume("run.seed"));
  EXPECT_TRUE(may_change_on_resume("run.steps"));
}

// Through links to one place: each goes on from its own checkpoints, and none takes the other's.
TEST(Resume, RunsThatShareAPlaceLeaveEachOtherAlone) {
  const SharedFolder folder("shared");
  const std::vector<std::string> saves = {"checkpoint.interval=3"};
  const RunConfig first = config_in(folder, "a", saves);
  const RunConfig second = config_in(folder, "b", {saves[0], "optimizer.learning_rate=2e-3", "run.seed=5"});
  on_root([&] {
    std::filesystem::create_directory(folder / "scratch");
    for (const char* const name : {"a", "b"}) {
      std::filesystem::create_directory(folder / name);
      std::filesystem::create_directory_symlink("../scratch", folder / name / "checkpoints");
    }
  });
  const RunConfig alone = config_in(folder, "alone", {saves[0], "optimizer.learning_rate=2e-3", "run.seed=5"});
  start_run(alone, {});
  start_run(first, stop_after(6));
  const std::vector<std::string> of_first = losses(first);
  EXPECT_TRUE(start_run(second, stop_after(6)).says("skipping 2 checkpoints of other runs"));
  EXPECT_TRUE(start_run(first, stop_after(1)).says("resumed from", "step-00000006 "));
  EXPECT_TRUE(start_run(second, {}).says("resumed from", "step-00000006."));
  EXPECT_EQ(losses(second), losses(alone));
  EXPECT_TRUE(start_run(first, {}).says("resumed from", "step-00000007"));
  EXPECT_TRUE(std::equal(of_first.begin(), of_first.end(), losses(first).begin()));
  EXPECT_EQ(find_checkpoints(folder / "scratch").size(), 4U) << "each keeps two";
  const RunConfig third = config_in(folder, "c", saves);
  EXPECT_TRUE(start_run(third, init_from(folder / "b")).says("weights from", "b/checkpoints/step-00000008"));
}

TEST(Resume, InitFromTakesWeightsOnly) {
  const SharedFolder folder("init_from");
  const RunConfig donor = config_in(folder, "donor");
  start_run(donor, {});
  const RunConfig config = config_in(folder, "run");
  start_run(config, init_from(folder / "donor/checkpoints/step-00000008"));
  const auto first = read_metrics(folder / "run/metrics.jsonl").front();
  const auto donor_first = read_metrics(folder / "donor/metrics.jsonl").front();
  EXPECT_EQ(first.at("step").get<int>(), 1);
  EXPECT_LT(first.at("loss").get<double>(), donor_first.at("loss").get<double>() - 0.05);
}

}  // namespace
}  // namespace espalier::test
