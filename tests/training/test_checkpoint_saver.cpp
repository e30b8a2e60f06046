// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Saves behind the training: what they hold, when they are there, and what becomes of one that fails.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "tests/io/support.hpp"
#include "tests/support/tensors.hpp"
#include "tests/training/run_starts.hpp"
#include "training/checkpoint/checkpoint_saver.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/verify/layouts_to_verify.hpp"

namespace espalier::test {
namespace {

RunConfig saver_config(const SharedFolder& folder, std::vector<std::string> more = {}) {
  more.emplace_back("checkpoint.async=true");
  return tiny_config(folder, world().size(), more);
}

// A trainer that saves into a folder, and what it says.
struct Saving {
  RunConfig config;
  TrainerOn<Fp32> on;
  std::vector<std::string> notes;
  Path checkpoints;
  CheckpointSaver saver;

  Saving(RunConfig of_run, Path directory)
      : config(std::move(of_run)),
        on(config, world()),
        checkpoints(std::move(directory)),
        saver(config, checkpoints, on.mesh, on.trainer, [this](const std::string& text) { notes.push_back(text); }) {}
  TypedTrainer<Fp32>& trainer() { return on.trainer; }
};

// This rank's weights and moments.
Values state_of(const TypedTrainer<Fp32>& trainer) {
  Values values;
  for (const auto& array :
       {trainer.store().flat_weights(), trainer.optimizer().exp_avg(), trainer.optimizer().exp_avg_sq()}) {
    const Values some = on_host(array);
    values.insert(values.end(), some.begin(), some.end());
  }
  return values;
}

Values state_in(const Path& checkpoint, const RunConfig& config) {
  TrainerOn<Fp32> on(config, world());
  load_training_state(CheckpointReader(checkpoint), on.trainer, model_tensors(world(), on.trainer.parameters()));
  return state_of(on.trainer);
}

TEST(CheckpointSaver, WritesTheStateOfTheSaveWhileTrainingGoesOn) {
  const SharedFolder folder("async_state");
  for (const int ranks_per_file : {1, 2}) {
    const RunConfig config =
        saver_config(folder, {fmt::format("checkpoint.ranks_per_file={}", ranks_per_file), "parallel.zero_stage=1"});
    Saving saving(config, folder / fmt::format("c{}", ranks_per_file));
    saving.trainer().step();
    const Values wanted = state_of(saving.trainer());
    saving.saver.save();
    saving.trainer().step();
    saving.trainer().step();
    EXPECT_NE(state_of(saving.trainer()), wanted);
    saving.saver.drain();
    barrier(world());
    EXPECT_EQ(state_in(checkpoint_path(saving.checkpoints, 1), config), wanted);
    EXPECT_EQ(static_cast<int>(CheckpointReader(checkpoint_path(saving.checkpoints, 1)).files().size()),
              (world().size() + ranks_per_file - 1) / ranks_per_file);
    barrier(world());
  }
}

TEST(CheckpointSaver, PublishesAtTheBoundaryOfAStep) {
  const SharedFolder folder("async_poll");
  Saving saving(saver_config(folder), folder / "c");
  saving.saver.poll();  // nothing to do
  saving.trainer().step();
  saving.saver.save();
  EXPECT_TRUE(std::filesystem::exists(folder / "c/step-00000001.partial"));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (saving.notes.empty() && std::chrono::steady_clock::now() < deadline)
    saving.saver.poll();
  ASSERT_EQ(saving.notes.size(), 1U);
  EXPECT_NE(saving.notes[0].find("saved"), std::string::npos);
  barrier(world());
  EXPECT_TRUE(find_checkpoints(folder / "c").at(0).complete);
  barrier(world());
}

TEST(CheckpointSaver, ASecondSaveWaitsForTheFirst) {
  const SharedFolder folder("async_wait");
  Saving saving(saver_config(folder), folder / "c");
  for (int step = 1; step <= 3; ++step) {
    saving.trainer().step();
    saving.saver.save();
  }
  saving.saver.drain();
  barrier(world());
  const auto found = find_checkpoints(folder / "c");
  ASSERT_EQ(found.size(), 2U) << "keep_last is 2";
  EXPECT_TRUE(found[0].complete && found[0].step == 3);
  EXPECT_TRUE(found[1].complete && found[1].step == 2);
  const auto says = [&](const std::string& text) {
    return std::count_if(saving.notes.begin(), saving.notes.end(),
                         [&](const std::string& note) { return note.find(text) != std::string::npos; });
  };
  EXPECT_EQ(says("saved"), 3);
  EXPECT_EQ(says("the save of step 3 waited"), 1);
  EXPECT_EQ(says("wait 2 of this launch"), 1);
  for (const std::string& note : saving.notes)
    EXPECT_FALSE(note.find("waited 0.0 s") != std::string::npos && note.find("faster disk") != std::string::npos)
        << "nothing to be spared: " << note;
  barrier(world());
}

TEST(CheckpointSaver, AFailedWriteIsAnErrorOnAllRanksAndTheNextSaveWorks) {
  const SharedFolder folder("async_fault");
  Saving saving(saver_config(folder, {"parallel.zero_stage=1"}), folder / "c");  // so that every rank writes
  saving.trainer().step();
  for (int failing = 0; failing < world().size(); ++failing) {
    std::optional<FileSizeLimit> full_disk;
    if (world().rank() == failing)
      full_disk.emplace(1000);
    saving.saver.save();  // only copies
    expect_refusal(
        ExitCode::write,
        {"step-00000001", "File too large", world().size() > 1 ? fmt::format("rank {}", failing) : std::string()},
        [&] { saving.saver.drain(); });
    EXPECT_TRUE(std::filesystem::is_empty(folder / "c"));
    barrier(world());
  }
  saving.saver.save();
  saving.saver.drain();
  barrier(world());
  EXPECT_TRUE(find_checkpoints(folder / "c").at(0).complete);
  barrier(world());
}

TEST(CheckpointSaver, OneThatIsGivenUpPublishesNothing) {
  const SharedFolder folder("async_abandoned");
  {
    Saving saving(saver_config(folder), folder / "c");
    saving.trainer().step();
    saving.saver.save();
  }  // as when another error ends the run
  barrier(world());
  for (const CheckpointEntry& entry : find_checkpoints(folder / "c"))
    EXPECT_FALSE(entry.complete);
  barrier(world());
}

TEST(CheckpointSaver, AValidationThatIsNotFiniteLeavesTheCheckpointBefore) {
  const SharedFolder folder("taken_back");
  for (const char* const async : {"false", "true"})
    for (const bool published : {true, false}) {
      const std::string name = fmt::format("c-{}-{}", async, published);
      Saving saving(tiny_config(folder, world().size(), {fmt::format("checkpoint.async={}", async)}), folder / name);
      for (int step = 1; step <= 2; ++step) {
        saving.trainer().step();
        saving.saver.save();
        if (step == 1 || published)
          saving.saver.drain();
      }
      saving.saver.judge(1.5);
      expect_refusal(ExitCode::numerical, {"validation loss is not finite", "step 2"},
                     [&] { saving.saver.judge(std::numeric_limits<double>::quiet_NaN()); });
      saving.saver.drain();
      barrier(world());
      const auto found = find_checkpoints(folder / name);
      ASSERT_EQ(found.size(), 1U) << name;
      EXPECT_TRUE(found[0].complete && found[0].step == 1) << name;
      EXPECT_EQ(std::filesystem::exists(folder / (name + "/step-00000002.abandoned")),
                published || async == std::string("false"))
          << name;
      barrier(world());
    }
}

TEST(CheckpointSaver, ACancelledSaveStaysUntilNoRankWritesAnyMore) {
  const SharedFolder folder("cancelled");
  Saving saving(saver_config(folder), folder / "c");
  saving.trainer().step();
  saving.saver.save();
  barrier(world());
  if (world().rank() == world().size() - 1) {  // later than the others
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_TRUE(std::filesystem::exists(folder / "c/step-00000001.partial"));
  }
  expect_refusal(ExitCode::numerical, {"validation loss is not finite"},
                 [&] { saving.saver.judge(std::numeric_limits<double>::infinity()); });
  EXPECT_TRUE(std::filesystem::is_empty(folder / "c"));
  barrier(world());
}

TEST(CheckpointSaver, TheCopyIsInTheLedgerAndInThePrediction) {
  const SharedFolder folder("async_memory");
  const RunConfig base = saver_config(folder, {"model.num_layers=4", "batch.micro_batch_size=2"});
  for (const std::vector<std::string>& overrides : settings_to_verify(base, world().size())) {
    const RunConfig config = laid_out(base, overrides);
    const MemoryByCategory before = MemoryLedger::instance().current();
    const Saving saving(config, folder / "c");
    const MemoryByCategory after = MemoryLedger::instance().current();
    const MemoryByCategory predicted = predict_memory(config, saving.on.layout, types_of<Fp32>())
                                           .at(static_cast<std::size_t>(saving.on.mesh.pp().rank()));
    const auto share = [](const MemoryByCategory& memory) {
      return static_cast<double>(memory[Category::weights] + memory[Category::gradients] + memory[Category::optimizer] +
                                 memory[Category::communication] + memory[Category::other]);
    };
    EXPECT_EQ(predicted[Category::other] > 0, exec_is_host);  // a GPU's state is copied to the host
    const Communicator stage = world().split(saving.on.mesh.pp().rank(), world().rank(), "stage");
    constexpr double small_arrays = exec_is_host ? 8 * 12 : 8 * 32;  // of a trainer, which are not predicted
    EXPECT_NEAR(all_reduce(stage, share(after) - share(before), ReduceOp::max), share(predicted), small_arrays)
        << saving.on.layout.text();
  }
}

TEST(Resume, WithSavesBehindTheTrainingTheBitsAreThoseOfAnUninterruptedRun) {
  const SharedFolder folder("async_resume");
  const RunConfig whole = config_in(folder, "whole");
  start_run(whole, {});
  const std::vector<std::string> wanted = losses(whole);
  for (const int stop : {3, 6}) {
    const RunConfig config =
        config_in(folder, fmt::format("stopped-{}", stop), {"checkpoint.async=true", "checkpoint.interval=2"});
    EXPECT_EQ(start_run(config, stop_after(stop)).outcome, TrainOutcome::stopped);
    EXPECT_EQ(find_checkpoints(Path(config.run.directory) / "checkpoints").at(0).step, stop) << "drained at a stop";
    barrier(world());
    EXPECT_EQ(start_run(config, {}).outcome, TrainOutcome::completed);
    EXPECT_EQ(losses(config), wanted) << "stopped after step " << stop;
    for (const CheckpointEntry& entry : find_checkpoints(Path(config.run.directory) / "checkpoints"))
      EXPECT_TRUE(entry.complete) << entry.path;
    barrier(world());
  }
}

}  // namespace
}  // namespace espalier::test
