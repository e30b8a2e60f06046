// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A spike of any layout is computed again on one rank, and the samples that made it are found.
#include <gtest/gtest.h>

#include <limits>

#include "tests/training/poisoned_run.hpp"
#include "training/verify/replay.hpp"

namespace espalier::test {
namespace {

std::vector<std::string> split_up() {
  if (world().size() == 4)
    return {"parallel.tensor=2", "parallel.pipeline=2", "parallel.schedule=zero_bubble"};
  return {fmt::format("parallel.zero_stage={}", world().size() - 1)};
}

// Rank 0 replays, alone.
void expect_replay(const RunConfig& config, double tolerance) {
  const Communicator alone = world().split(world().rank(), 0, "alone");
  if (world().rank() != 0)
    return;
  const Path path = Path(config.run.directory) / "incidents/step-00000014-sample-00000104";
  const Incident incident = read_incident(path);
  const RunConfig one_rank = replay_config(path, {});
  const ProcessMesh mesh(alone, make_run_layout(one_rank, 1).mesh());
  const Replay result = replay(path, incident, one_rank, mesh, [](const std::string&) {});
  EXPECT_TRUE(is_reproduced(incident.loss, result.loss, tolerance)) << incident.loss << " " << result.loss;
  EXPECT_TRUE(is_reproduced(incident.gradient_norm, result.gradient_norm, tolerance))
      << incident.gradient_norm << " " << result.gradient_norm;
  if (world().size() == 1) {
    EXPECT_EQ(result.loss, incident.loss) << "the same layout gives the same bits";
    EXPECT_EQ(result.gradient_norm, incident.gradient_norm);
  }
  ASSERT_EQ(result.samples.size(), 8U);
  double mean = 0;
  double largest_of_others = 0;
  double smallest_of_poisoned = std::numeric_limits<double>::infinity();
  for (const ReplayedSample& sample : result.samples) {
    mean += sample.loss / 8;
    const bool poisoned =
        std::find(poisoned_samples.begin(), poisoned_samples.end(), sample.sample) != poisoned_samples.end();
    double& bound = poisoned ? smallest_of_poisoned : largest_of_others;
    bound = poisoned ? std::min(bound, sample.gradient_norm) : std::max(bound, sample.gradient_norm);
    EXPECT_NE(sample.file.find("poisoned.bin"), std::string::npos);
    EXPECT_EQ(sample.first_token % 24, 0);
  }
  EXPECT_NEAR(mean, result.loss, tolerance * result.loss);
  EXPECT_GT(smallest_of_poisoned, 1.5 * largest_of_others) << "the samples that did it stand out";
  EXPECT_GE(result.tensors.front().norm, result.tensors.back().norm);
  double squares = 0;
  for (const TensorNorm& tensor : result.tensors)
    squares += tensor.norm * tensor.norm;
  EXPECT_NEAR(std::sqrt(squares), result.gradient_norm, 1e-6 * result.gradient_norm);
}

TEST(Replay, FindsTheSamplesThatDidIt) {
  const SharedFolder folder("replay");
  const RunConfig config = laid_out(poisoned_config(folder, "run", world().size()), split_up());
  start_run(config, {});
  expect_replay(config, 1e-4);
  barrier(world());
}

// The weights that are kept are the master weights: rounded again they are those that the step was computed with.
TEST(Replay, IsRightIn16Bits) {
  const SharedFolder folder("replay16");
  const RunConfig config =
      laid_out(poisoned_config(folder, "run", world().size(), {"precision.compute=bf16"}), split_up());
  const Layout layout = make_run_layout(config, world().size());
  const ProcessMesh mesh(world(), layout.mesh());
  train(config, {}, layout, mesh, {}, {});
  barrier(world());
  expect_replay(config, 0.05);
  barrier(world());
}

TEST(Replay, KnowsWhatIsReproduced) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(is_reproduced(nan, 1 / 0.0, 1e-4)) << "both not finite";
  EXPECT_FALSE(is_reproduced(nan, 1, 1e-4));
  EXPECT_FALSE(is_reproduced(1, nan, 1e-4));
  EXPECT_TRUE(is_reproduced(1, 1.00009, 1e-4));
  EXPECT_FALSE(is_reproduced(1, 1.0002, 1e-4));
}

}  // namespace
}  // namespace espalier::test
