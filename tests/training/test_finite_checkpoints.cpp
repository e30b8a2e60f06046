// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// No run ends well, or goes on, with a state that is not finite.
#include <gtest/gtest.h>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/records/run_directory.hpp"
#include "tests/training/rewrite_checkpoint.hpp"
#include "training/checkpoint/training_state.hpp"

namespace espalier::test {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

// Eight steps; a checkpoint of each second one.
RunConfig run_in(const SharedFolder& folder, const std::string& name, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"checkpoint.interval=2", "parallel.zero_stage=1"});
  return config_in(folder, name, more);
}

// With an update from which no model recovers, in every step of this start.
RunConfig diverging(const RunConfig& config) {
  return laid_out(config, {"optimizer.learning_rate=1e30", "optimizer.minimum_learning_rate=1e30"});
}

Path checkpoints_of(const RunConfig& config) { return Path(config.run.directory) / "checkpoints"; }

Index newest_step(const RunConfig& config) {
  const auto found = find_checkpoints(checkpoints_of(config));
  return found.empty() ? -1 : found.front().step;
}

void expect_divergence(const RunConfig& config, Index newest_sound) {
  expect_refusal(ExitCode::numerical, {"the same command resumes from"}, [&] { start_run(config, {}); });
  EXPECT_EQ(newest_step(config), newest_sound);
  EXPECT_EQ(read_run_record(config.run.directory)->state, RunState::failed);
  barrier(world());
}

TEST(FiniteCheckpoints, TheLastStepOfARunMustLeaveAFiniteModel) {
  const SharedFolder folder("finite_end");
  int run = 0;
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {},
           {"checkpoint.async=true"},
           {"checkpoint.check_loss=false"},
           {"stability.on_spike=\"skip\""},
           {"checkpoint.keep_every=3", "data.validation=[\"" + (folder / "tokens.bin").string() + "\"]"}}) {
    const RunConfig config = run_in(folder, fmt::format("run-{}", ++run), more);
    start_run(config, stop_after(7));
    expect_divergence(diverging(config), 7);
    EXPECT_EQ(start_run(config, {}).outcome, TrainOutcome::completed);
    EXPECT_EQ(newest_step(config), 8);
    barrier(world());
  }
}

// Without a look at a loss at each save it is the validation that tells.
TEST(FiniteCheckpoints, AStateWhoseValidationIsNotFiniteIsNoneToGoOnFrom) {
  const SharedFolder folder("finite_validation");
  for (const char* const async : {"false", "true"}) {
    const RunConfig config =
        run_in(folder, async,
               {fmt::format("checkpoint.async={}", async), "checkpoint.check_loss=false", "run.eval_interval=2",
                "data.validation=[\"" + (folder / "tokens.bin").string() + "\"]"});
    start_run(config, stop_after(3));
    expect_divergence(diverging(config), 3);
    EXPECT_EQ(start_run(config, {}).outcome, TrainOutcome::completed);
  }
}

// Written by earlier versions, or by whatever broke the machine's arithmetic.
TEST(FiniteCheckpoints, AResumePassesOverNumbersThatAreNotFinite) {
  const SharedFolder folder("finite_resume");
  int run = 0;
  for (const auto& [tensor, value] :
       {std::pair("weights/h.1.mlp.down.bias", nan), std::pair("exp_avg/h.0.attention.value.weight", infinity),
        std::pair("exp_avg_sq/embedding.token", nan), std::pair("exp_avg_sq/h.0.mlp.up.weight", -1e-6F),
        std::pair("exp_avg/h.1.mlp.up.weight", 1e30F)}) {
    const RunConfig config = run_in(folder, fmt::format("run-{}", ++run));
    start_run(config, stop_after(4));
    rewrite(config.run.directory, [&, name = tensor, bad = value](Tensors& tensors, nlohmann::json& state) {
      tensors.at(name).back() = bad;
      state.erase("next_loss");
    });
    const Start start = start_run(config, {});
    EXPECT_TRUE(start.says("passing over", std::string(tensor).substr(std::string(tensor).find('/')))) << tensor;
    EXPECT_TRUE(start.says("resumed from", "step-00000002"));
    EXPECT_EQ(start.outcome, TrainOutcome::completed);
    barrier(world());
  }
}

// Finite, and yet no model: earlier versions saved these, without a loss.
TEST(FiniteCheckpoints, AResumePassesOverWeightsThatGiveNoFiniteLoss) {
  const SharedFolder folder("finite_loss");
  const RunConfig config = run_in(folder, "run");
  start_run(config, stop_after(4));
  rewrite(config.run.directory, [&](Tensors& tensors, nlohmann::json& state) {
    for (float& weight : tensors.at("weights/embedding.token"))
      weight *= 1e12F;
    for (float& bias : tensors.at("weights/final_norm.bias"))
      bias = 1e30F;
    state.erase("next_loss");
  });
  const Start start = start_run(config, {});
  EXPECT_TRUE(start.says("passing over", "no finite loss"));
  EXPECT_TRUE(start.says("resumed from", "step-00000002"));
}

TEST(FiniteCheckpoints, NothingBeginsWithWeightsThatAreNotFinite) {
  const SharedFolder folder("finite_start");
  const RunConfig donor = run_in(folder, "donor");
  start_run(donor, stop_after(1));
  rewrite(donor.run.directory, [](Tensors& tensors, nlohmann::json& state) {
    tensors.at("weights/final_norm.weight").front() = nan;
    state.erase("next_loss");
  });
  const Path checkpoint = find_checkpoints(checkpoints_of(donor)).at(0).path;
  expect_refusal(ExitCode::checkpoint, {"not finite", "weights/final_norm.weight"},
                 [&] { start_run(run_in(folder, "heir"), init_from(donor.run.directory)); });
  expect_refusal(ExitCode::checkpoint, {"not finite", "weights/final_norm.weight"},
                 [&] { start_run(run_in(folder, "other"), resume_from(checkpoint)); });
  expect_refusal(ExitCode::checkpoint, {"none of the run's checkpoints can be used"}, [&] { start_run(donor, {}); });
}

}  // namespace
}  // namespace espalier::test
