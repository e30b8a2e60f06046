// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The same layout gives the same bits, in whatever order messages arrive and whoever carries the collectives. A program
// of its own: it runs with each MPI library.
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "tests/support/message_delays.hpp"
#include "tests/support/tensors.hpp"
#include "tests/training/tiny_run.hpp"

namespace espalier::test {
namespace {

constexpr int num_runs = 20;
constexpr int num_steps = 2;
constexpr int max_micros = 50;

/// Where MPI's collectives go on without messages of ours: each rank comes to them late.
class LateCollectives : public StepObserver {
 public:
  explicit LateCollectives(unsigned seed) : random_(1000 * seed + static_cast<unsigned>(world().rank())) {
    world().state()->context->observers.add(*this);
  }
  ~LateCollectives() override { world().state()->context->observers.remove(*this); }
  LateCollectives(const LateCollectives&) = delete;
  LateCollectives& operator=(const LateCollectives&) = delete;
  void collective_begins(std::uint32_t, std::uint64_t) override { ::usleep(random_() % max_micros); }

 private:
  std::mt19937 random_;
};

struct Trained {
  Curve curve;
  Values state;  // of this rank: weights and moments
  bool operator==(const Trained&) const = default;
};

Trained train(const RunConfig& config) {
  TrainerOn<Fp32> on(config, world());
  Trained result;
  for (int i = 0; i < num_steps; ++i) {
    const StepReport report = on.trainer.step();
    result.curve.losses.push_back(report.loss);
    result.curve.norms.push_back(report.gradient_norm);
  }
  for (const auto& array :
       {on.trainer.store().flat_weights(), on.trainer.optimizer().exp_avg(), on.trainer.optimizer().exp_avg_sq()}) {
    const Values some = on_host(array);
    result.state.insert(result.state.end(), some.begin(), some.end());
  }
  return result;
}

Trained train_late(const RunConfig& config, int max_direct_ranks, unsigned seed) {
  world().set_max_direct_ranks(max_direct_ranks);
  if (max_direct_ranks == 1) {
    const LateCollectives late(seed);
    return train(config);
  }
  delay_messages(world(), max_micros, seed);
  Trained result = train(config);
  delay_messages(world(), 0);
  return result;
}

void expect_same_bits(const std::vector<std::string>& layout) {
  ASSERT_EQ(world().size(), 4);
  const SharedFolder folder("same_bits");
  std::vector<std::string> keys = {"emulate.message_scale=5000"};  // many buckets of gradients
  keys.insert(keys.end(), layout.begin(), layout.end());
  const RunConfig config = tiny_config(folder, world().size(), keys);
  const int usual = world().context().max_direct_ranks;
  const Trained wanted = train(config);
  for (const int max_direct_ranks : {usual, 1})
    for (unsigned seed = 1; seed <= num_runs; ++seed)
      ASSERT_EQ(all_reduce(world(), train_late(config, max_direct_ranks, seed) == wanted ? 0 : 1), 0)
          << "ranks that differ in run " << seed << (max_direct_ranks == 1 ? ", collectives of the library" : "");
  world().set_max_direct_ranks(usual);
}

TEST(SameBits, ReplicasOfTensorRanks) { expect_same_bits({"parallel.data=2", "parallel.tensor=2"}); }
TEST(SameBits, ShardedWeights) { expect_same_bits({"parallel.data=4", "parallel.zero_stage=3"}); }

}  // namespace
}  // namespace espalier::test
