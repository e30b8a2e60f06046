// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A resume is checked by the loss that was stored at the save: a wrong one is refused.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/records/run_paths.hpp"
#include "tests/training/rewrite_checkpoint.hpp"
#include "training/checkpoint/next_loss.hpp"
#include "training/verify/layouts_to_verify.hpp"

namespace espalier::test {
namespace {

TEST(NextLoss, IsTheSameOnEveryLayout) {
  const SharedFolder folder("next_loss_layouts");
  const RunConfig base = tiny_config(folder, 1, {"batch.micro_batch_size=2", "model.num_layers=4"});
  // Also such as fill no micro-batch of any layout.
  const std::vector<Index> samples = {1, 5, 8};
  const auto losses_of = [&](const RunConfig& config, const Communicator& communicator) {
    TrainerOn<Fp64> on(config, communicator);
    std::vector<double> losses;
    for (const Index count : samples)
      losses.push_back(on.trainer.next_loss(count));
    return losses;
  };
  const std::vector<double> wanted = losses_of(base, world().split(world().rank(), 0, "alone"));
  for (const std::vector<std::string>& overrides : settings_to_verify(base, world().size()))
    EXPECT_LT(largest_relative_error(losses_of(laid_out(base, overrides), world()), wanted), 1e-13)
        << fmt::format("{}", fmt::join(overrides, " "));
}

// Of the whole batch it is the loss that the next step reports; asking changes nothing.
TEST(NextLoss, OfTheWholeBatchIsTheLossOfTheNextStep) {
  const SharedFolder folder("next_loss_step");
  const RunConfig config = tiny_config(folder, world().size());
  TrainerOn<Fp64> asked(config, world());
  TrainerOn<Fp64> other(config, world());
  for (int step = 0; step < 3; ++step) {
    const double next = asked.trainer.next_loss(config.layout.global_batch);
    const StepReport report = asked.trainer.step();
    EXPECT_NEAR(next, report.loss, 1e-13);
    EXPECT_EQ(report.loss, other.trainer.step().loss);
  }
}

class NextLossOfARun : public ::testing::Test {
 protected:
  NextLossOfARun() : config_(config_in(folder_, "run")) { start_run(config_, stop_after(4)); }
  void change(const std::function<void(Tensors&, nlohmann::json&)>& change) { rewrite(folder_ / "run", change); }
  void expect_refused() {
    expect_refusal(ExitCode::checkpoint,
                   {"the loss of the next samples differs", "within 1e-05 of it", "checkpoint.check_loss=false"},
                   [&] { start_run(config_, {}); });
  }

  const SharedFolder folder_{"next_loss_run"};
  RunConfig config_;
};

TEST_F(NextLossOfARun, ARightResumeSaysSo) {
  change([](Tensors&, nlohmann::json&) {});
  EXPECT_TRUE(start_run(config_, {}).says("have the loss that was stored"));
}

// Nothing that a checkpoint holds is lost on those who read it.
TEST_F(NextLossOfARun, TheStateOfACheckpointIsReadAsWritten) {
  if (world().rank() != 0)
    return;
  const CheckpointReader checkpoint(checkpoint_path(Path(folder_ / "run") / RunFolder::checkpoints, 4));
  const StoredState state = read_state(checkpoint);
  EXPECT_EQ(to_json(state), checkpoint.state());
  EXPECT_TRUE(state.next_loss);
  EXPECT_GT(state.kokkos, 0);
  EXPECT_FALSE(state.spike_guard.is_null() || state.data_files.is_null());
}

TEST_F(NextLossOfARun, WrongWeightsAreRefusedThoughAllChecksumsAreRight) {
  change([](Tensors& tensors, nlohmann::json&) {
    for (float& value : tensors.at("weights/final_norm.weight"))
      value *= 1.1F;
  });
  expect_refused();
}

TEST_F(NextLossOfARun, SwappedLayersAreRefused) {
  change([](Tensors& tensors, nlohmann::json&) {
    for (const std::string name : {"query", "key", "value"})
      std::swap(tensors.at("weights/h.0.attention." + name + ".weight"),
                tensors.at("weights/h.1.attention." + name + ".weight"));
  });
  expect_refused();
}

TEST_F(NextLossOfARun, AnotherPlaceInTheDataIsRefused) {
  change([](Tensors&, nlohmann::json& state) {  // one batch further, and counted
    const Index samples = state["data_position"];
    state["tokens"] = state["tokens"].get<Index>() / samples * (samples + 8);
    state["data_position"] = samples + 8;
  });
  expect_refused();
}

TEST_F(NextLossOfARun, ALossThatIsNoneIsRefused) {
  change([](Tensors&, nlohmann::json& state) { state["next_loss"]["samples"] = 0; });
  expect_refusal(ExitCode::checkpoint, {"none of the run's checkpoints can be used"}, [&] { start_run(config_, {}); });
  change([](Tensors&, nlohmann::json& state) { state["next_loss"] = "low"; });
  expect_refusal(ExitCode::checkpoint, {"none of the run's checkpoints can be used"}, [&] { start_run(config_, {}); });
}

TEST_F(NextLossOfARun, ItCanBeSwitchedOff) {
  change([](Tensors&, nlohmann::json& state) { state["next_loss"]["loss"] = 99; });
  config_.checkpoint.check_loss = false;
  EXPECT_FALSE(start_run(config_, stop_after(1)).says("have the loss that was stored") && world().rank() == 0);
  config_.checkpoint.check_loss = true;
  EXPECT_TRUE(start_run(config_, {}).says("has no loss to check the resume with"));
}

}  // namespace
}  // namespace espalier::test
