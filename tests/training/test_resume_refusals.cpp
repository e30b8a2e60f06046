// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A start goes on from the last complete checkpoint and says so, or refuses with the reason and changes nothing.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/records/run_directory.hpp"
#include "tests/training/run_starts.hpp"

namespace espalier::test {
namespace {

std::map<std::string, std::string> content_of(const Path& directory) {
  std::map<std::string, std::string> content;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    content[entry.path().string()] =
        entry.is_regular_file() ? read_file(entry.path(), ExitCode::data) : std::string("a directory");
  return content;
}

// The start is refused, and afterwards every file is as it was.
template <class Action>
void expect_untouched(const Path& directory, ExitCode code, const std::vector<std::string>& parts,
                      const Action& action) {
  const auto before = content_of(directory);
  barrier(world());
  expect_refusal(code, parts, action);
  EXPECT_TRUE(content_of(directory) == before) << "the refused start changed something in " << directory;
  barrier(world());
}

class ResumeRefusals : public ::testing::Test {
 protected:
  ResumeRefusals() : folder_("refusals"), run_(config("run")) {
    start_run(run_, {});
    wanted_ = losses(run_);
  }

  RunConfig config(const std::string& name, std::vector<std::string> more = {}) const {
    more.emplace_back("checkpoint.interval=4");
    return config_in(folder_, name, more);
  }
  Path checkpoint(const std::string& step) const { return folder_ / ("run/checkpoints/step-0000000" + step); }
  void remove_shards() const {
    on_root([&] {
      for (const CheckpointEntry& entry : find_checkpoints(folder_ / "run/checkpoints"))
        std::filesystem::remove(entry.path / "rank-00000.h5");
    });
  }

  SharedFolder folder_;
  RunConfig run_;
  std::vector<std::string> wanted_;
};

TEST_F(ResumeRefusals, IncompleteCheckpointsAreNoEmptyDirectory) {
  remove_shards();
  expect_untouched(folder_ / "run", ExitCode::checkpoint,
                   {"step-00000008: a file of a checkpoint is missing", "step-00000004", "does not start over"},
                   [&] { start_run(run_, {}); });
  expect_untouched(folder_ / "run", ExitCode::usage, {"incomplete checkpoints", "step-00000008"}, [&] {
    start_run(run_, {"never", "", 0});
  });
}

TEST_F(ResumeRefusals, TokensOfAnotherTokenizerAreAnotherText) {
  const std::string other = write_tokens(folder_ / "other.bin", 5000, 61, {}, "gpt2");
  const std::vector<std::string> parts = {"another tokenizer", "gpt2", "byte"};
  const std::vector<std::string> files = {"data.train=[\"" + other + "\"]", "run.steps=12"};
  TrainOptions on_new_data;
  on_new_data.new_data = true;
  expect_untouched(folder_ / "run", ExitCode::data, parts, [&] { start_run(config("run", files), on_new_data); });
  expect_refusal(ExitCode::data, parts, [&] {
    start_run(config("tuned", files), {"auto", (folder_ / "run").string(), 0});
  });
}

TEST_F(ResumeRefusals, SavesThatWereNeverFinishedCountAsNothing) {
  on_root([&] {
    std::filesystem::remove_all(folder_ / "run/checkpoints");
    std::filesystem::create_directories(folder_ / "run/checkpoints/step-00000004.partial");
    std::ofstream(folder_ / "run/checkpoints/step-00000004.partial/rank-00000.h5") << "half of it";
  });
  const Start again = start_run(run_, {"never", "", 0});
  EXPECT_EQ(again.outcome, TrainOutcome::completed);
  EXPECT_EQ(losses(run_), wanted_);
  on_root([&] {
    std::filesystem::remove_all(folder_ / "run/checkpoints");
    std::filesystem::create_directories(folder_ / "run/checkpoints/step-00000004.partial");
  });
  forget_good_end(folder_ / "run");
  EXPECT_TRUE(start_run(run_, {}).says("passing over", "step-00000004.partial: its save was not finished"));
  EXPECT_EQ(losses(run_), wanted_);
}

// The shapes of all tensors agree in each of these.
TEST_F(ResumeRefusals, AnotherConfigIsFoundInTheCheckpoint) {
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"model.num_heads=2", "model.num_heads: 4 -> 2"},
      {"run.seed=5", "run.seed: 1 -> 5"},
      {"batch.global_batch_size=16", "batch.global_batch_size: 8 -> 16"},
      {"batch.sequence_length=12", "batch.sequence_length: 24 -> 12"},
      {"data.validation=[\"" + (folder_ / "tokens.bin").string() + "\"]", "data.validation: [] -> "}};
  on_root([&] { std::filesystem::remove(folder_ / "run/config.toml"); });
  for (const auto& [change, line] : changes) {
    expect_untouched(folder_ / "run", ExitCode::usage, {"another config", line},
                     [&, &key = change] { start_run(config("run", {key}), {}); });
    expect_refusal(ExitCode::usage, {"another config", line},
                   [&, &key = change] { start_run(config("other", {key}), resume_from(checkpoint("4"))); });
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "other")) << "a refused start made a run directory";

  const Start longer = start_run(config("other", {"optimizer.learning_rate=2e-3"}), resume_from(checkpoint("4")));
  EXPECT_TRUE(longer.says("config changed: optimizer.learning_rate = 0.002 (was 0.001)"));
  EXPECT_TRUE(longer.says("resumed from", "step-00000004"));
  EXPECT_TRUE(start_run(config("run"), {}).says("resumed from", "step-00000008")) << "without its config.toml";
}

TEST_F(ResumeRefusals, InitFromWantsTheSameFunctionAndNothingElse) {
  expect_refusal(ExitCode::checkpoint, {"another model", "model.num_heads: 4 -> 2"},
                 [&] { start_run(config("heads", {"model.num_heads=2"}), init_from(checkpoint("8"))); });
  EXPECT_FALSE(std::filesystem::exists(folder_ / "heads"));
  const RunConfig other = config("other", {"run.seed=5", "batch.global_batch_size=16", "optimizer.learning_rate=2e-3"});
  EXPECT_TRUE(start_run(other, init_from(checkpoint("8"))).says("weights from", "step-00000008"));
}

TEST_F(ResumeRefusals, InitFromIsForTheFirstStart) {
  const RunConfig heir = config("heir");
  start_run(heir, {"auto", (folder_ / "run").string(), 5});
  const std::vector<std::string> first = losses(heir);
  const Start again = start_run(heir, init_from(folder_ / "run"));
  EXPECT_TRUE(again.says("--init-from", "resumes from its own checkpoint"));
  EXPECT_TRUE(again.says("resumed from", "heir/checkpoints/step-00000005"));
  ASSERT_EQ(losses(heir).size(), 8U);
  EXPECT_TRUE(std::equal(first.begin(), first.end(), losses(heir).begin()));
  expect_untouched(folder_ / "heir", ExitCode::usage, {"--resume and --init-from"}, [&] {
    start_run(heir, {checkpoint("8").string(), checkpoint("8").string(), 0});
  });
}

TEST_F(ResumeRefusals, ARunStandsForItsNewestCompleteCheckpoint) {
  on_root([&] { std::filesystem::remove(checkpoint("8") / "rank-00000.h5"); });
  const RunConfig other = config("other");
  EXPECT_TRUE(start_run(other, resume_from(folder_ / "run")).says("resumed from", "step-00000004"));
  const std::vector<std::string> rest = losses(other);
  ASSERT_EQ(rest.size(), 4U);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), wanted_.begin() + 4));
}

TEST_F(ResumeRefusals, WhatCannotBeResumedChangesNothing) {
  expect_untouched(folder_ / "run", ExitCode::usage, {"--resume never"}, [&] { start_run(run_, {"never", "", 0}); });
  expect_untouched(folder_ / "run", ExitCode::checkpoint, {"--resume names neither", "atuo"}, [&] {
    start_run(run_, {"atuo", "", 0});
  });
  expect_untouched(folder_ / "run", ExitCode::checkpoint, {"no complete checkpoint here"},
                   [&] { start_run(run_, resume_from(folder_ / "run/state")); });
  expect_refusal(ExitCode::checkpoint, {"no complete checkpoint here"},
                 [&] { start_run(config("fresh"), init_from(folder_ / "nowhere")); });
  EXPECT_FALSE(std::filesystem::exists(folder_ / "fresh"));

  // A start that was killed says "running", and its story is kept for the start that trains.
  on_root([&] {
    RunRecord record = *read_run_record(folder_ / "run");
    record.state = RunState::running;
    record.pid = 0;
    write_file_atomically(folder_ / "run/run.json", to_json(record).dump());
  });
  expect_untouched(folder_ / "run", ExitCode::checkpoint, {"atuo"}, [&] { start_run(run_, {"atuo", "", 0}); });
  EXPECT_TRUE(start_run(run_, {}).says("was killed or crashed"));
  EXPECT_EQ(read_run_record(folder_ / "run")->state, RunState::completed);
}

}  // namespace
}  // namespace espalier::test
