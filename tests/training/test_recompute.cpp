// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Recomputation in every layout: the same bits, the memory and the bytes that were predicted.
#include <gtest/gtest.h>

#include "models/head.hpp"
#include "tests/support/tensors.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/prediction/predict_traffic.hpp"
#include "training/verify/layouts_to_verify.hpp"

namespace espalier::test {
namespace {

using Overrides = std::vector<std::string>;

RunConfig four_layers(const SharedFolder& folder, const Overrides& more = {}) {
  Overrides overrides = {"model.num_layers=4", "model.num_heads=8", "batch.micro_batch_size=2"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return tiny_config(folder, 1, overrides);
}

// "full" on even stages, "selective" on odd ones.
std::string mixed(Index stages) {
  std::string list;
  for (Index stage = 0; stage < stages; ++stage)
    list += fmt::format("{}\"{}\"", stage ? "," : "", stage % 2 ? "selective" : "full");
  return "parallel.recompute_per_stage=[" + list + "]";
}

std::vector<std::string> modes(const RunConfig& config) {
  std::vector<std::string> all = {"parallel.recompute=none", "parallel.recompute=selective", "parallel.recompute=full"};
  if (config.layout.pipeline > 1)
    all.push_back(mixed(config.layout.pipeline));
  return all;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::uint64_t weights = 0;  // of this rank
  bool operator==(const Outcome&) const = default;
};

// Trains, and compares the ledger and the bytes sent with the predictions on the way.
template <class P>
Outcome train(const RunConfig& config) {
  const MemoryByCategory before = MemoryLedger::instance().current();
  TrainerOn<P> on(config, world());
  const MemoryByCategory after = MemoryLedger::instance().current();
  const std::string what = on.layout.text();
  const MemoryByCategory predicted =
      predict_memory(config, on.layout, types_of<P>()).at(static_cast<std::size_t>(on.mesh.pp().rank()));
  EXPECT_EQ(after[Category::activations] - before[Category::activations], predicted[Category::activations]) << what;
  const auto workspace = static_cast<double>(predicted[Category::workspace]);
  const double headers = 8192 + 0.001 * workspace;  // and small tensors beside it, such as partial sums of the norm
  EXPECT_NEAR(static_cast<double>(after[Category::workspace] - before[Category::workspace]), workspace, headers)
      << what;
  Outcome outcome;
  for (int i = 0; i < 3; ++i) {
    const StepReport report = on.trainer.step();
    outcome.losses.push_back(report.loss);
    outcome.norms.push_back(report.gradient_norm);
    EXPECT_EQ(report.bytes_sent, predict_traffic(config, on.layout, world().rank(), types_of<P>())) << what;
  }
  outcome.weights = fingerprint(on.trainer.store().flat_weights());
  return outcome;
}

template <class P>
void expect_same_bits(const RunConfig& config) {
  Outcome kept;
  std::size_t most = 0;
  for (const std::string& mode : modes(config)) {
    const RunConfig recomputing = laid_out(config, {mode});
    const Outcome outcome = train<P>(recomputing);
    const Layout layout = make_run_layout(recomputing, world().size());
    const std::size_t slots = predict_memory(recomputing, layout, types_of<P>()).front()[Category::activations];
    if (mode == "parallel.recompute=none") {
      kept = outcome;
      most = slots;
    } else {
      EXPECT_EQ(outcome, kept) << layout.text();
      EXPECT_LT(slots, most) << layout.text();
    }
  }
}

TEST(RecomputeLayouts, SameBitsAndPredictedMemoryAndBytesInEveryLayout) {
  const SharedFolder folder("recompute");
  const RunConfig base = four_layers(folder);
  std::size_t number = 0;
  for (const Overrides& overrides : layouts_without_zero(base, world().size(), {2})) {
    expect_same_bits<Fp32>(laid_out(base, overrides));
    if (number++ % 4 == 0)
      expect_same_bits<Fp64>(laid_out(base, overrides));
  }
}

// The loss in several chunks of rows, on a vocabulary that is cut.
TEST(RecomputeLayouts, ChunksOfTheLossSendWhatTheFormulasSay) {
  const SharedFolder folder("logit_chunks");
  const int half = std::max(1, world().size() / 2);
  const Index vocabulary = 90001 * world().size() * (logits_here.max_at_once / logits_on_host.max_at_once);
  const RunConfig base =
      four_layers(folder, {fmt::format("model.vocab_size={}", vocabulary), "model.hidden_size=8", "model.num_layers=2",
                           "model.max_sequence_length=48", "batch.micro_batch_size=4", "batch.global_batch_size=4"});
  Outcome kept;
  for (const char* const sequence_parallel : {"false", "true"})
    for (const int tensor : {half, world().size()}) {
      const RunConfig config = laid_out(base, {fmt::format("parallel.tensor={}", tensor),
                                               fmt::format("parallel.sequence_parallel={}", sequence_parallel),
                                               fmt::format("batch.micro_batch_size={}", 4 * tensor / world().size())});
      const Layout layout = make_run_layout(config, world().size());
      EXPECT_GT(first_rank_work(config, layout).head.forward.matmuls.size(), 3U)
          << "one chunk of rows, " << layout.text();
      const Outcome outcome = train<Fp32>(config);
      if (kept.losses.empty())
        kept = outcome;
      EXPECT_LT(largest_relative_error(outcome.losses, kept.losses), 1e-5) << layout.text();
    }
}

}  // namespace
}  // namespace espalier::test
