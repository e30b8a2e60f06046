// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Stopping and going on gives the bits of a run that was never stopped.
#include <gtest/gtest.h>

#include <fstream>

#include "io/checkpoint.hpp"
#include "io/metrics.hpp"
#include "io/run_directory.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/train_loop.hpp"

namespace espalier::test {
namespace {

struct Start {
  TrainOutcome outcome;
  std::vector<std::string> notes;
};

Start start_run(const RunConfig& config, TrainOptions options) {
  Start start;
  const RunLayout layout = make_run_layout(config, world().size());
  const ProcessMesh mesh(world(), layout.mesh);
  TrainEvents events;
  events.note = [&](const std::string& text) { start.notes.push_back(text); };
  start.outcome = train<float>(config, options, layout, mesh, events, [] { return false; });
  barrier(world());
  return start;
}

TrainOptions stop_after(Index steps) { return {"auto", "", steps}; }
TrainOptions init_from(const Path& checkpoint) { return {"auto", checkpoint.string(), 0}; }

RunConfig config_in(const SharedFolder& folder, const std::string& name, std::vector<std::string> more = {}) {
  more.push_back("run.directory=\"" + (folder / name).string() + "\"");
  more.push_back("run.steps=8");
  return tiny_config(folder, world().size(), more);
}

// The losses of a run as text: equal text is equal bits.
std::vector<std::string> losses(const RunConfig& config) {
  std::vector<std::string> texts;
  for (const auto& line : read_metrics(Path(config.run.directory) / "metrics.jsonl"))
    texts.push_back(line.at("step").dump() + " " + line.at("loss").dump() + " " + line.at("gradient_norm").dump());
  return texts;
}

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
  if (world().rank() == 0) {
    bool passed_over = false;
    for (const std::string& note : again.notes)
      passed_over = passed_over ||
                    (note.find("passing over") != std::string::npos && note.find("step-00000006") != std::string::npos);
    EXPECT_TRUE(passed_over) << "the torn checkpoint must be named";
  }
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
  EXPECT_THROW(start_run(config, TrainOptions{"never", "", 0}), Error);
  barrier(world());
  if (world().rank() == 0)
    for (const CheckpointEntry& entry : find_checkpoints(folder / "run/checkpoints")) {
      std::fstream file(entry.path / "rank-00000.h5", std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(entry.path / "rank-00000.h5") / 2));
      file << "damaged beyond repair, every checkpoint of them";
    }
  barrier(world());
  try {
    start_run(config, {});
    ADD_FAILURE() << "a run without a usable checkpoint went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
  }
}

TEST(Resume, RefusesAnotherModelAndLogsWhatMayChange) {
  const SharedFolder folder("changed");
  start_run(config_in(folder, "run"), stop_after(2));
  const RunConfig another = config_in(folder, "run", {"model.hidden_size=48"});
  if (world().rank() == 0) {  // the directory is rank 0's; the others would wait for it
    EXPECT_THROW(RunDirectory(folder / "run", to_toml(another), may_change_on_resume), Error);
  }
  barrier(world());
  const Start longer = start_run(config_in(folder, "run", {"checkpoint.interval=3"}), {});
  if (world().rank() == 0) {
    bool logged = false;
    for (const std::string& note : longer.notes)
      logged = logged || note.find("checkpoint.interval = 3") != std::string::npos;
    EXPECT_TRUE(logged);
  }
  EXPECT_FALSE(may_change_on_resume("model.hidden_size"));
  EXPECT_FALSE(may_change_on_resume("run.seed"));
  EXPECT_TRUE(may_change_on_resume("run.steps"));
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
