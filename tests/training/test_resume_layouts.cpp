// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A run goes on in another layout than the one that saved it.
#include <gtest/gtest.h>

#include "io/records/metrics.hpp"
#include "tests/training/families.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier::test {
namespace {

constexpr Index num_steps = 8;
constexpr Index saved_step = 4;

RunConfig run_in(const SharedFolder& folder, const std::string& name, std::vector<std::string> layout, int ranks) {
  layout.insert(layout.end(),
                {"run.directory=\"" + (folder / name).string() + "\"", fmt::format("run.steps={}", num_steps),
                 "model.num_layers=4", "batch.micro_batch_size=2"});
  return tiny_config(folder, ranks, layout);
}

// The ranks of `communicator` train; `checkpoint` is where they go on from, empty: from the start.
void run_on(const Communicator& communicator, const RunConfig& config, const Path& checkpoint, Index stop_after) {
  const Layout layout = make_run_layout(config, communicator.size());
  const ProcessMesh mesh(communicator, layout.mesh());
  TrainOptions options;
  if (!checkpoint.empty())
    options.resume = checkpoint.string();
  options.stop_after = stop_after;
  train(config, options, layout, mesh, {}, {});
}

// Losses and gradient norms of the last steps of a run.
Curve last_steps(const SharedFolder& folder, const std::string& name) {
  Curve curve;
  for (const auto& line : read_metrics(folder / name / "metrics.jsonl"))
    if (line.at("step").get<Index>() > saved_step) {
      curve.losses.push_back(line.at("loss").get<double>());
      curve.norms.push_back(line.at("gradient_norm").get<double>());
    }
  EXPECT_EQ(curve.losses.size(), static_cast<std::size_t>(num_steps - saved_step)) << name;
  return curve;
}

TEST(AcrossLayouts, ARunGoesOnInAnyOther) {
  ASSERT_EQ(world().size(), 4);
  const SharedFolder folder("across_layouts");
  const std::vector<std::string> saved_by = {"parallel.tensor=2", "parallel.pipeline=2"};
  run_on(world(), run_in(folder, "whole", saved_by, 4), {}, 0);
  run_on(world(), run_in(folder, "stopped", saved_by, 4), {}, saved_step);
  barrier(world());
  const Path checkpoint = folder / "stopped" / "checkpoints" / "step-00000004";
  const Curve wanted = last_steps(folder, "whole");

  struct Continuation {
    std::string name;
    std::vector<std::string> layout;
  };
  const std::vector<Continuation> continuations = {
      {"same", saved_by},
      {"data_4", {"parallel.data=4"}},
      {"pipeline_4", {"parallel.pipeline=4", "parallel.schedule=zero_bubble"}},
      {"zero_1", {"parallel.data=4", "parallel.zero_stage=1"}},
      {"zero_3", {"parallel.data=2", "parallel.pipeline=2", "parallel.zero_stage=3"}},
      {"hybrid", {"parallel.data=4", "parallel.zero_stage=3", "parallel.shard_over=node", "emulate.ranks_per_node=2"}},
      {"mixed", {"parallel.tensor=2", "parallel.data=2", "parallel.sequence_parallel=true", "parallel.zero_stage=1"}}};
  for (const Continuation& next : continuations) {
    run_on(world(), run_in(folder, next.name, next.layout, 4), checkpoint, 0);
    barrier(world());
    const Curve got = last_steps(folder, next.name);
    if (next.name == "same") {
      EXPECT_EQ(got, wanted) << "the same layout gives the same bits";
    }
    EXPECT_LT(largest_relative_error(got.losses, wanted.losses), 1e-5) << next.name;
    EXPECT_LT(largest_relative_error(got.norms, wanted.norms), 1e-4) << next.name;
  }

  const Communicator alone = world().split(world().rank(), 0, "alone");
  const RunConfig one = run_in(folder, "one_rank", {}, 1);
  if (world().rank() == 0)
    run_on(alone, one, checkpoint, 0);
  barrier(world());
  EXPECT_LT(largest_relative_error(last_steps(folder, "one_rank").losses, wanted.losses), 1e-5);
}

// What ZeRO has shared out is put together again; of several copies it is saved once.
class FromZero : public testing::TestWithParam<std::vector<std::string>> {};
INSTANTIATE_TEST_SUITE_P(
    AcrossLayouts, FromZero,
    testing::Values(std::vector<std::string>{"parallel.pipeline=2", "parallel.data=2", "parallel.zero_stage=3"},
                    std::vector<std::string>{"parallel.data=4", "parallel.zero_stage=2", "parallel.shard_over=node",
                                             "emulate.ranks_per_node=2"}));

TEST_P(FromZero, SharedOptimizerStateGoesOnWithoutZero) {
  ASSERT_EQ(world().size(), 4);
  const SharedFolder folder("from_zero");
  const std::vector<std::string>& saved_by = GetParam();
  run_on(world(), run_in(folder, "whole", saved_by, 4), {}, 0);
  run_on(world(), run_in(folder, "stopped", saved_by, 4), {}, saved_step);
  barrier(world());
  const Path checkpoint = folder / "stopped" / "checkpoints" / "step-00000004";
  const Curve wanted = last_steps(folder, "whole");
  run_on(world(), run_in(folder, "tensor", {"parallel.tensor=4"}, 4), checkpoint, 0);
  barrier(world());
  EXPECT_LT(largest_relative_error(last_steps(folder, "tensor").losses, wanted.losses), 1e-5);
  run_on(world(), run_in(folder, "same", saved_by, 4), checkpoint, 0);
  barrier(world());
  EXPECT_EQ(last_steps(folder, "same"), wanted);
}

// Four tensor ranks hold two heads of keys and values, two ranks the same: each is saved once, and read by all.
TEST(AcrossLayouts, SharedHeadsOfKeysGoOnElsewhere) {
  ASSERT_EQ(world().size(), 4);
  const SharedFolder folder("shared_heads");
  const auto with = [&](std::vector<std::string> layout) {
    for (const char* const family : {"llama", "qwen3"})
      layout.insert(layout.begin(), families().at(family).begin(), families().at(family).end());
    return layout;
  };
  const std::vector<std::string> saved_by = with({"parallel.tensor=4", "parallel.sequence_parallel=true"});
  run_on(world(), run_in(folder, "whole", saved_by, 4), {}, 0);
  run_on(world(), run_in(folder, "stopped", saved_by, 4), {}, saved_step);
  barrier(world());
  const Path checkpoint = folder / "stopped" / "checkpoints" / "step-00000004";
  const Curve wanted = last_steps(folder, "whole");
  run_on(world(), run_in(folder, "same", saved_by, 4), checkpoint, 0);
  barrier(world());
  EXPECT_EQ(last_steps(folder, "same"), wanted);
  run_on(world(), run_in(folder, "split", with({"parallel.data=2", "parallel.pipeline=2", "parallel.zero_stage=1"}), 4),
         checkpoint, 0);
  barrier(world());
  EXPECT_LT(largest_relative_error(last_steps(folder, "split").losses, wanted.losses), 1e-5);
}

}  // namespace
}  // namespace espalier::test
