// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A rollback leads where a run gets to that never saw the samples.
#include <gtest/gtest.h>

#include "tests/training/poisoned_run.hpp"
#include "training/checkpoint/training_state.hpp"

namespace espalier::test {
namespace {

RunConfig rolling_back(const SharedFolder& folder, const std::string& name, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"stability.on_spike=rollback", "checkpoint.interval=5"});
  if (world().size() > 1)
    more.insert(more.begin(), "parallel.zero_stage=2");
  return poisoned_config(folder, name, world().size(), more);
}

// The bits of losses and weights of a run that passes over the poisoned step from its start.
struct Wanted {
  std::vector<std::string> losses;
  std::vector<float> weights;
};

Wanted without_the_samples(const SharedFolder& folder) {
  const RunConfig config = rolling_back(folder, "unused");
  TrainerOn<Fp32> on(config, world());
  on.trainer.set_passed_over({{(poisoned_step - 1) * 8, poisoned_step * 8}});
  Wanted wanted;
  for (Index step = 0; step < 20; ++step) {
    const StepReport report = on.trainer.step();
    const nlohmann::json line = {{"step", report.step}, {"loss", report.loss}, {"norm", report.gradient_norm}};
    wanted.losses.push_back(line.at("step").dump() + " " + line.at("loss").dump() + " " + line.at("norm").dump());
    EXPECT_EQ(report.judgement.anomaly, Anomaly::none) << "step " << report.step;
  }
  wanted.weights = flat_weights(on.trainer);
  return wanted;
}

std::vector<float> saved_weights(const RunConfig& config, Index step) {
  TrainerOn<Fp32> on(config, world());
  const CheckpointReader checkpoint(checkpoint_path(Path(config.run.directory) / "checkpoints", step));
  load_training_state(checkpoint, on.trainer, model_tensors(world(), on.trainer.parameters()));
  EXPECT_EQ(on.trainer.passed_over(), (std::vector<IndexRange>{{(poisoned_step - 1) * 8, poisoned_step * 8}}));
  return flat_weights(on.trainer);
}

TEST(Rollback, GivesTheBitsOfARunThatNeverSawTheSamples) {
  const SharedFolder folder("rollback");
  const RunConfig config = rolling_back(folder, "run");
  const Start start = start_run(config, {});
  EXPECT_EQ(start.outcome, TrainOutcome::completed);
  EXPECT_TRUE(start.says("step 14 is a spike", "back to the last checkpoint"));
  EXPECT_TRUE(start.says("resumed from", "step-00000010"));
  EXPECT_TRUE(start.says("skipping global samples 104 to 111"));
  const Wanted wanted = without_the_samples(folder);
  EXPECT_EQ(losses(config), wanted.losses);
  EXPECT_EQ(saved_weights(config, 20), wanted.weights);
  const auto last = read_metrics(Path(config.run.directory) / "metrics.jsonl").back();
  EXPECT_EQ(last.at("passed_over_samples"), 8);
  EXPECT_EQ(last.at("tokens"), 20 * 8 * 24) << "what is passed over is not trained on";
  EXPECT_TRUE(std::filesystem::exists(folder / "run/incidents/step-00000014-sample-00000104/incident.json"));
}

// 13 steps, the spike, and then steps 11, 12, ... again: stopped among them, and once more after the next checkpoint.
TEST(Rollback, IsRememberedAcrossStops) {
  const SharedFolder folder("stops");
  const RunConfig config = rolling_back(folder, "run");
  EXPECT_EQ(start_run(config, stop_after(15)).outcome, TrainOutcome::stopped);
  EXPECT_EQ(start_run(config, stop_after(5)).outcome, TrainOutcome::stopped);
  EXPECT_EQ(start_run(config, {}).outcome, TrainOutcome::completed);
  EXPECT_EQ(losses(config), without_the_samples(folder).losses);
}

// Killed between the rollback and the next checkpoint: the spike is met again, and the same is done.
TEST(Rollback, IsRepeatedAfterALossOfWhatFollowed) {
  const SharedFolder folder("killed");
  const RunConfig config = rolling_back(folder, "run", {"checkpoint.keep_last=9"});
  start_run(config, stop_after(16));
  on_root([&] { std::filesystem::remove_all(folder / "run/checkpoints/step-00000012"); });
  EXPECT_TRUE(start_run(config, {}).says("step 14 is a spike"));
  EXPECT_EQ(losses(config), without_the_samples(folder).losses);
}

TEST(Rollback, GoesBackToTheStartWhereNothingWasSaved) {
  const SharedFolder folder("start");
  const RunConfig config = rolling_back(folder, "run", {"checkpoint.interval=0"});
  EXPECT_TRUE(start_run(config, {}).says("resumed from", "step-00000000"));
  EXPECT_EQ(losses(config), without_the_samples(folder).losses);
}

TEST(Rollback, EndsTheRunWhereItDoesNotHelp) {
  const SharedFolder folder("limit");
  const RunConfig config = rolling_back(folder, "run", {"stability.max_rollbacks=0"});
  expect_refusal(ExitCode::numerical, {"more than 0 rollbacks", "step 14", "learning_rate"},
                 [&] { start_run(config, {}); });
}

// It is back at the checkpoint then, and takes no step more.
TEST(Rollback, AStopThatIsAskedForInTheStepIsHeard) {
  const SharedFolder folder("stop");
  const RunConfig config = rolling_back(folder, "run");
  bool asked = false;
  const Start start = start_run(config, {}, [&] {
    const Path metrics = Path(config.run.directory) / "metrics.jsonl";
    asked = asked || (world().rank() == 0 && std::filesystem::exists(metrics) &&
                      static_cast<Index>(read_metrics(metrics).size()) == poisoned_step - 1);
    return std::string(asked ? "SIGTERM" : "");
  });
  EXPECT_EQ(start.outcome, TrainOutcome::stopped);
  EXPECT_TRUE(start.says("resumed from", "step-00000010"));
  EXPECT_EQ(losses(config).size(), 10U);
}

}  // namespace
}  // namespace espalier::test
