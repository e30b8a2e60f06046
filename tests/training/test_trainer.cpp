// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/training/tiny_run.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/verify/logical_tensors.hpp"

namespace espalier::test {
namespace {

TEST(Trainer, LossFallsAndCountsTokens) {
  const SharedFolder folder("trainer");
  const RunConfig config = tiny_config(folder, 1);
  TrainerOn<Fp32> on(config, world());
  Trainer& trainer = on.trainer;
  StepReport report;
  double first = 0;
  for (int i = 0; i < 20; ++i) {
    report = trainer.step();
    first = i == 0 ? report.loss : first;
  }
  EXPECT_NEAR(first, std::log(61.0), 0.1) << "a model that knows nothing";
  EXPECT_LT(report.loss, first - 0.1);
  EXPECT_EQ(report.step, 20);
  EXPECT_EQ(report.tokens, 20 * 8 * 24);
}

TEST(Trainer, DivergenceEndsTheRunBeforeTheWeightsChange) {
  const SharedFolder folder("diverge");
  const RunConfig config = tiny_config(folder, 1);
  TrainerOn<Fp32> on(config, world());
  TypedTrainer<Fp32>& trainer = on.trainer;
  trainer.step();
  Kokkos::deep_copy(Kokkos::subview(trainer.store().flat_weights(), std::pair<Index, Index>(0, 64)), 1e38F);
  const auto before = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), trainer.store().flat_weights());
  std::vector<float> kept(before.data(), before.data() + before.extent(0));
  try {
    trainer.step();
    ADD_FAILURE() << "an infinite loss went unnoticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::numerical);
    EXPECT_NE(std::string(error.what()).find("step 2"), std::string::npos) << error.what();
  }
  const auto after = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), trainer.store().flat_weights());
  EXPECT_TRUE(std::equal(kept.begin(), kept.end(), after.data()));
}

std::vector<std::string>* seen_fences = nullptr;  // the callback is a plain function
void note_fence(const char* label, std::uint32_t, std::uint64_t*) {
  if (const std::string reason = label; reason.starts_with("espalier::"))
    seen_fences->push_back(reason);
}

// Waits of this program for its device, in the order in which they came. Kokkos' own are not among them.
template <class F>
std::vector<std::string> fences_of(const F& work) {
  namespace tools = Kokkos::Tools::Experimental;
  std::vector<std::string> result;
  seen_fences = &result;
  const tools::EventSet before = tools::get_callbacks();
  tools::set_begin_fence_callback(note_fence);
  work();
  tools::set_callbacks(before);
  return result;
}

const std::vector<std::string> one_wait = {"espalier::StepTransfers: values are read on the host"};

TEST(Trainer, WaitsForTheDeviceOnceAStep) {
  const SharedFolder folder("waits");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"stability.on_spike=skip"}, {"parallel.recompute=full"}}) {
    TrainerOn<Fp32> on(tiny_config(folder, 1, more), world());
    on.trainer.step();
    for (int step = 2; step <= 4; ++step)
      EXPECT_EQ(fences_of([&] { on.trainer.step(); }), one_wait) << "step " << step;
  }
}

// Of several ranks losses and norms are added up before the update, and kernels end before MPI reads what they wrote.
TEST(TrainerPeers, WaitForTheDeviceOnceAStepAndForMessages) {
  ASSERT_EQ(world().size(), 2);
  const SharedFolder folder("waits_of_peers");
  const std::vector<std::vector<std::string>> layouts = {{"parallel.data=2"},
                                                         {"parallel.data=2", "parallel.zero_stage=3"},
                                                         {"parallel.tensor=2"},
                                                         {"parallel.pipeline=2"}};
  for (const std::vector<std::string>& layout : layouts) {
    TrainerOn<Fp32> on(tiny_config(folder, 2, layout), world());
    on.trainer.step();
    std::vector<std::string> fences = fences_of([&] { on.trainer.step(); });
    const auto is_of_messages = [](const std::string& reason) { return reason.starts_with("espalier::parallel: "); };
    EXPECT_GT(std::erase_if(fences, is_of_messages), 0U) << layout.back();
    EXPECT_EQ(fences, one_wait) << layout.back();
  }
}

// The update is queued behind the gradients or begun when they are known: the same bits.
TEST(Trainer, AStepIsItsTwoHalves) {
  const SharedFolder folder("halves");
  const RunConfig config = tiny_config(folder, 1);
  TrainerOn<Bf16> whole(config, world());
  TrainerOn<Bf16> halves(config, world());
  for (int step = 0; step < 5; ++step) {
    const StepReport report = whole.trainer.step();
    StepReport other = halves.trainer.compute_gradients();
    halves.trainer.update(other);
    EXPECT_EQ(report.loss, other.loss);
    EXPECT_EQ(report.gradient_norm, other.gradient_norm);
    EXPECT_EQ(report.learning_rate, other.learning_rate);
  }
  EXPECT_EQ(master_weights(whole.trainer), master_weights(halves.trainer));
}

TEST(Trainer, MemoryIsWhatWasPredicted) {
  const SharedFolder folder("memory");
  const RunConfig config =
      tiny_config(folder, 1, {"model.hidden_size=64", "model.ffn_hidden_size=256", "model.max_sequence_length=64"});
  const MemoryByCategory before = MemoryLedger::instance().current();
  const TrainerOn<Fp32> on(config, world());
  const MemoryByCategory after = MemoryLedger::instance().current();
  const MemoryByCategory predicted = predict_memory(config, on.layout, types_of<Fp32>()).front();
  const auto measured = static_cast<double>(after.total() - before.total());
  EXPECT_NEAR(measured / static_cast<double>(predicted.total()), 1.0, 0.01);
  for (const Category category : {Category::weights, Category::gradients, Category::optimizer, Category::activations})
    EXPECT_EQ(after[category] - before[category], predicted[category]) << to_string(category);
}

TEST(Trainer, OverBudgetFailsBeforeItAllocates) {
  const SharedFolder folder("budget");
  const RunConfig config = tiny_config(folder, 1);
  MemoryLedger& ledger = MemoryLedger::instance();
  ledger.set_budget(ledger.current().total() - ledger.library_scratch() + 100000);
  try {
    const TrainerOn<Fp32> on(config, world());
    ADD_FAILURE() << "the budget was not enforced";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::memory);
  }
  ledger.set_budget(0);
}

}  // namespace
}  // namespace espalier::test
