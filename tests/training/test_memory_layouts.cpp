// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A model that does not fit one rank trains on several, within the memory that was predicted for each.
#include <gtest/gtest.h>

#include "core/memory_text.hpp"
#include "core/ops/matmul_library.hpp"
#include "io/units.hpp"
#include "tests/training/families.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/prediction/gemm_rate.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/prediction/require_memory.hpp"
#include "training/verify/layouts_to_verify.hpp"

namespace espalier::test {
namespace {

// Weights, gradients, moments and activations of 8 layers outweigh the token embedding by far.
RunConfig large_config(const SharedFolder& folder, const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = {"model.num_layers=8", "model.hidden_size=64", "model.ffn_hidden_size=256",
                                        "batch.micro_batch_size=2"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return tiny_config(folder, 1, overrides);
}

/// @param slack of moments and buffers, as a share: the rank with the highest peak, whose memory is predicted, need not
/// be the one with most of these, as the copy for a save counts too
template <class P>
void expect_predicted_memory(const RunConfig& config, double slack = 0) {
  const MemoryByCategory before = MemoryLedger::instance().current();
  const TrainerOn<P> on(config, world());
  const MemoryByCategory after = MemoryLedger::instance().current();
  const MemoryByCategory predicted =
      predict_memory(config, on.layout, types_of<P>()).at(static_cast<std::size_t>(on.mesh.pp().rank()));
  const std::string what = on.layout.text();
  const Communicator stage = world().split(on.mesh.pp().rank(), world().rank(), "stage");
  const double measured = all_reduce(stage, static_cast<double>(after.total() - before.total()), ReduceOp::max);
  EXPECT_NEAR(measured / static_cast<double>(predicted.total()), 1.0, 0.01) << what;
  std::vector<Category> equal = {Category::activations};  // on all ranks of the stage
  if (config.layout.zero_stage < 3)
    equal.push_back(Category::weights);
  if (config.layout.zero_stage < 2)
    equal.push_back(Category::gradients);
  for (const Category category : equal)
    EXPECT_EQ(after[category] - before[category], predicted[category]) << to_string(category) << ", " << what;
  // Slices end where rows do, and the first tensor rank may have a row more of the token embedding: the prediction is
  // that of the rank of the stage with the highest peak memory. (Besides, a trainer has small arrays that are not
  // predicted.)
  const auto share = [&](const MemoryByCategory& memory) {
    return static_cast<double>(memory[Category::optimizer] + memory[Category::communication] +
                               memory[Category::weights] + memory[Category::gradients]);
  };
  constexpr double rounding = 8 * 8;  // Kokkos rounds each allocation up to 8 bytes
  EXPECT_NEAR(all_reduce(stage, share(after) - share(before), ReduceOp::max), share(predicted),
              rounding + std::max(slack, config.layout.zero_stage < 2 ? 0.0 : 1e-3) * share(predicted))
      << what;
}

TEST(MemoryLayouts, PredictedIsMeasuredInEveryLayout) {
  const SharedFolder folder("memory_layouts");
  const RunConfig base = large_config(folder);
  for (const std::vector<std::string>& overrides : settings_to_verify(base, world().size())) {
    expect_predicted_memory<Fp32>(laid_out(base, overrides));
    std::vector<std::string> separate = overrides;
    separate.insert(separate.end(), {"data.documents=separate", "data.document_end=1"});
    if (std::ranges::count(overrides, "parallel.pipeline=1") == 0)  // a slot each of micro-batches in flight
      expect_predicted_memory<Fp32>(laid_out(base, separate));
    if (world().size() == 1)
      expect_predicted_memory<Fp64>(laid_out(base, overrides));
  }
}

TEST(MemoryLayouts, OfSumsInTwoLevels) {
  const SharedFolder folder("memory_two_levels");
  for (const RunConfig& config : two_level_configs(large_config(folder)))
    expect_predicted_memory<Fp32>(config);
}

// Of a model so small that what tensor ranks add lies in one short message; and of one whose sums are cut into slices.
TEST(MemoryLayouts, AStepNeedsNoMoreThanATrainerHas) {
  const SharedFolder folder("memory_step");
  const std::string tensor = fmt::format("parallel.tensor={}", world().size());
  for (const char* const micro_batch : {"batch.micro_batch_size=1", "batch.micro_batch_size=4"})
    for (const char* const rows : {"parallel.sequence_parallel=false", "parallel.sequence_parallel=true"}) {
      const RunConfig config =
          tiny_config(folder, world().size(), {tensor, micro_batch, rows, "parallel.recompute=full"});
      const MemoryByCategory before = MemoryLedger::instance().current();
      TrainerOn<Fp32> on(config, world());
      const std::size_t there = MemoryLedger::instance().current()[Category::communication];
      EXPECT_GE(there - before[Category::communication],
                static_cast<std::size_t>(tensor_scratch_bytes(config.model.shape, on.layout, on.layout.has_head(0),
                                                              memory_options(config, on.layout, types_of<Fp32>()))));
      on.trainer.step();
      constexpr std::size_t small = 1024;  // of the loss and other single numbers
      EXPECT_LE(MemoryLedger::instance().current()[Category::communication], there + small);
    }
}

TEST(MemoryLayouts, PredictedIsMeasuredForEveryFamily) {
  const SharedFolder folder("memory_families");
  for (const auto& [family, keys] : families()) {
    SCOPED_TRACE(family);
    const RunConfig base = large_config(folder, keys);
    const std::vector<std::vector<std::string>> layouts = settings_to_verify(base, world().size());
    for (std::size_t i = 0; i < layouts.size(); i += 3) {
      expect_predicted_memory<Fp32>(laid_out(base, layouts[i]), 0.01);
      std::vector<std::string> recomputing = layouts[i];
      recomputing.push_back(i % 2 == 0 ? "parallel.recompute=selective" : "parallel.recompute=full");
      expect_predicted_memory<Fp32>(laid_out(base, recomputing), 0.01);
    }
  }
}

std::size_t predicted_total(const RunConfig& base, const std::vector<std::string>& overrides, int ranks) {
  const RunConfig config = parse_run_config(to_toml(base), "layout", overrides, ranks);
  const std::vector<MemoryByCategory> stages = predict_memory(config, make_run_layout(config, ranks));
  return stages.at(static_cast<std::size_t>(peak_stage(stages))).total();
}

// Between what one rank needs and what a quarter of the model needs.
RunConfig budgeted_config(const SharedFolder& folder) {
  const RunConfig base = large_config(folder);
  std::size_t need = 0;
  for (const std::vector<std::string>& split : std::vector<std::vector<std::string>>{
           {"parallel.pipeline=4"}, {"parallel.tensor=4"}, {"parallel.pipeline=2", "parallel.tensor=2"}})
    need = std::max(need, predicted_total(base, split, 4));
  const std::size_t whole = predicted_total(base, {}, 1);
  EXPECT_LT(need, whole * 6 / 10) << "a quarter of the layers and what every rank has besides";
  return parse_run_config(to_toml(base), "budget", {fmt::format("run.device_memory={}", (need + whole) / 2)}, 1);
}

void expect_does_not_fit(const RunConfig& config) {
  try {
    require_memory(config, make_run_layout(config, world().size()));
    ADD_FAILURE() << "a model over the budget was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::memory);
    const std::string text = error.what();
    const auto budget = bytes_text(static_cast<std::size_t>(config.run.device_memory));
    const auto need =
        budget_text(predicted_total(config, {fmt::format("parallel.data={}", world().size())}, world().size()));
    // The three largest parts are named; on a GPU activations are larger than gradients here.
    for (const std::string& word :
         {std::string("need of " + need), "run.device_memory = " + budget, std::string("optimizer"),
          std::string("weights"), std::string(exec_is_host ? "gradients" : "activations"), std::string("layouts"),
          std::string("pipeline"), std::string("tensor 4")})
      EXPECT_NE(text.find(word), std::string::npos) << "\"" << word << "\" is not in\n" << text;
  }
}

TEST(MemoryLayouts, ReplicasDoNotHelpAModelThatIsTooLarge) {
  const SharedFolder folder("budget_layouts");
  const RunConfig base = budgeted_config(folder);
  const RunConfig replicas = laid_out(base, {fmt::format("parallel.data={}", world().size())});
  expect_does_not_fit(replicas);
  // What the prediction says holds: the ledger refuses as well.
  MemoryLedger::instance().set_budget(MemoryLedger::instance().current().total() +
                                      static_cast<std::size_t>(base.run.device_memory));
  EXPECT_THROW(TrainerOn<Fp32>(replicas, world()), Error);
  MemoryLedger::instance().set_budget(0);
}

// ZeRO-3 trains what stage 1 and 2 have no room for.
TEST(MemorySplit, ABudgetForShardedLayersOnly) {
  ASSERT_EQ(world().size(), 4);
  const SharedFolder folder("sharded_budget");
  const RunConfig base = large_config(folder, {"batch.micro_batch_size=1", "model.hidden_size=128"});
  const auto need = [&](int stage) {
    return predicted_total(base, {"parallel.data=4", fmt::format("parallel.zero_stage={}", stage)}, 4);
  };
  const std::size_t budget = (need(3) + need(2)) / 2;
  EXPECT_LT(need(3), need(2));
  EXPECT_LT(need(2), need(1));
  const auto with_stage = [&](int stage) {
    return laid_out(base, {"parallel.data=4", fmt::format("parallel.zero_stage={}", stage),
                           fmt::format("run.device_memory={}", budget)});
  };
  const MatmulLibrary library_before = matmul_library();
  set_matmul_library(wanted_matmul_library(base, ScalarType::fp32));
  const std::size_t before = MemoryLedger::instance().current().total();
  for (const int stage : {1, 2}) {
    const RunConfig config = with_stage(stage);
    try {
      require_memory(config, make_run_layout(config, 4));
      ADD_FAILURE() << "stage " << stage << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("parallel.zero_stage = 3 would fit"), std::string::npos) << error.what();
    }
    MemoryLedger::instance().set_budget(before + budget);
    EXPECT_THROW(
        {
          TrainerOn<Fp32> on(config, world());
          on.trainer.step();
          MemoryLedger::instance().check_budget();
        },
        Error)
        << "stage " << stage;
    MemoryLedger::instance().set_budget(0);
  }
  const RunConfig config = with_stage(3);
  require_memory(config, make_run_layout(config, 4));
  MemoryLedger::instance().reset_peak();
  MemoryLedger::instance().set_budget(before + budget);
  {
    TrainerOn<Fp32> on(config, world());
    const double first = on.trainer.step().loss;
    for (int i = 0; i < 4; ++i)
      on.trainer.step();
    EXPECT_LT(on.trainer.step().loss, first);
    EXPECT_LE(MemoryLedger::instance().peak().total(), before + budget);
  }
  MemoryLedger::instance().set_budget(0);
  set_matmul_library(library_before);
}

TEST(MemorySplit, ModelsOnFourRanksTrainWithinTheBudget) {
  ASSERT_EQ(world().size(), 4);
  const SharedFolder folder("within_budget");
  const RunConfig base = budgeted_config(folder);
  const MatmulLibrary library_before = matmul_library();
  set_matmul_library(wanted_matmul_library(base, ScalarType::fp32));
  for (const std::vector<std::string>& split : std::vector<std::vector<std::string>>{
           {"parallel.pipeline=4"}, {"parallel.tensor=4"}, {"parallel.pipeline=2", "parallel.tensor=2"}}) {
    const RunConfig config = laid_out(base, split);
    require_memory(config, make_run_layout(config, 4));
    const std::size_t before = MemoryLedger::instance().current().total();
    const auto budget = static_cast<std::size_t>(base.run.device_memory);
    MemoryLedger::instance().reset_peak();
    MemoryLedger::instance().set_budget(before + budget);
    {
      TrainerOn<Fp32> on(config, world());
      const double first = on.trainer.step().loss;
      double last = first;
      for (int i = 0; i < 9; ++i)
        last = on.trainer.step().loss;
      EXPECT_LT(last, first) << on.layout.text();
      EXPECT_LE(MemoryLedger::instance().peak().total(), before + budget) << on.layout.text();
    }
    MemoryLedger::instance().set_budget(0);
  }
  set_matmul_library(library_before);
}

}  // namespace
}  // namespace espalier::test
