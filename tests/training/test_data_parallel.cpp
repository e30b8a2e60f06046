// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Any number of replicas trains the model of one rank.
#include <gtest/gtest.h>

#include "tests/support/message_delays.hpp"
#include "tests/training/tiny_run.hpp"

namespace espalier::test {
namespace {

// Each rank trains alone on the whole batch; all ranks train together.
template <class P>
void expect_losses_of_one_rank(double tolerance) {
  const SharedFolder folder("data_parallel");
  const Communicator alone = world().split(world().rank(), 0, "alone");
  const Curve wanted = train_curve<P>(tiny_config(folder, 1), alone, 20);
  const Curve got = train_curve<P>(tiny_config(folder, world().size()), world(), 20);
  EXPECT_LT(wanted.losses.back(), wanted.losses.front() - 0.1) << "the model must learn, or equality proves nothing";
  EXPECT_LT(largest_relative_error(got.losses, wanted.losses), tolerance);
  EXPECT_LT(largest_relative_error(got.norms, wanted.norms), 10 * tolerance);
}

TEST(DataParallel, LossesOfOneRankInFp32) { expect_losses_of_one_rank<Fp32>(1e-5); }
TEST(DataParallel, LossesOfOneRankInFp64) { expect_losses_of_one_rank<Fp64>(1e-10); }

TEST(DataParallel, SameBitsTwiceAlsoWithDelayedMessages) {
  const SharedFolder folder("same_bits");
  const RunConfig config = tiny_config(folder, world().size());
  const Curve first = train_curve<Fp32>(config, world(), 10);
  const Curve second = train_curve<Fp32>(config, world(), 10);
  EXPECT_EQ(first, second);
  delay_messages(world(), 2000, 42);
  const Curve delayed = train_curve<Fp32>(config, world(), 10);
  delay_messages(world(), 0);
  EXPECT_EQ(first, delayed);
}

TEST(DataParallel, AccumulationDoesNotChangeTheStep) {
  const SharedFolder folder("accumulation");
  const int size = world().size();
  const Curve wanted = train_curve<Fp64>(tiny_config(folder, size), world(), 6);
  for (const int micro_batch : {1, 2, 4, 8}) {
    if (8 % (size * micro_batch) != 0)
      continue;
    const Curve got = train_curve<Fp64>(
        tiny_config(folder, size, {fmt::format("batch.micro_batch_size={}", micro_batch)}), world(), 6);
    EXPECT_LT(largest_relative_error(got.losses, wanted.losses), 1e-12) << "micro-batches of " << micro_batch;
  }
}

TEST(DataParallel, EvaluationDoesNotDependOnTheNumberOfReplicas) {
  const SharedFolder folder("evaluation");
  const std::string file = (folder / "tokens.bin").string();
  const std::vector<std::string> more = {"data.validation=[\"" + file + "\"]", "run.eval_samples=13"};
  const Communicator alone = world().split(world().rank(), 0, "alone");
  const auto evaluate = [&](const Communicator& communicator) {
    const RunConfig config = tiny_config(folder, communicator.size(), more);
    return TrainerOn<Fp64>(config, communicator).trainer.evaluate().value();
  };
  tiny_config(folder, 1);  // writes the file
  EXPECT_NEAR(evaluate(world()), evaluate(alone), 1e-12);
}

}  // namespace
}  // namespace espalier::test
