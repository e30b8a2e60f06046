// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "planning/layout_memory.hpp"
#include "training/predict_memory.hpp"

using namespace espalier;

namespace {

ModelShape with_dropout(const char* name) {
  ModelShape model = model_preset(name);
  model.dropout = true;
  return model;
}

Implementation unfused() {
  Implementation program;
  program.fused_attention = false;
  program.recomputes_attention = true;
  return program;
}

// Rajbhandari et al. 2020, Table 1 and section 3.1: 16 bytes a parameter; 7.5B parameters on 64 ranks take 120, 31.4,
// 16.6 and 1.9 GB (of 10^9 bytes) with none, the optimizer, gradients, all sharded.
TEST(LayoutMemory, states_follow_the_zero_paper) {
  Implementation program;
  program.gradient_bytes = 2;
  const StateBytes whole = state_bytes(Precision::fp16, program);
  const auto gigabytes = [&](double billions, int stage, double ranks) {
    return billions * sharded_state_bytes(whole, stage, ranks).total();
  };
  EXPECT_NEAR(gigabytes(7.5, 0, 64), 120, 0.05);
  EXPECT_NEAR(gigabytes(7.5, 1, 64), 31.4, 0.05);
  EXPECT_NEAR(gigabytes(7.5, 2, 64), 16.6, 0.05);
  EXPECT_NEAR(gigabytes(7.5, 3, 64), 1.88, 0.01);
  EXPECT_NEAR(gigabytes(128, 1, 16), 608, 0.5);
  EXPECT_NEAR(gigabytes(1000, 3, 1024), 15.6, 0.05);
}

// Megatron-LM's distributed optimizer: bf16 weights with fp32 gradients 18, or 6 + 12/d; fp32 16, or 8 + 8/d.
TEST(LayoutMemory, states_follow_the_distributed_optimizer) {
  const StateBytes bf16 = state_bytes(Precision::bf16, {});
  EXPECT_EQ(bf16.total(), 18);
  EXPECT_EQ(sharded_state_bytes(bf16, 1, 4).total(), 6 + 12.0 / 4);
  const StateBytes fp32 = state_bytes(Precision::fp32, {});
  EXPECT_EQ(sharded_state_bytes(fp32, 1, 4).total(), 8 + 8.0 / 4);
}

// Korthikanti et al. 2022, Table 2, bytes a layer: s b h (34 + 5 a s / h) without parallelism, s b h (10 + 24/t + 5 a s
// / (h t)) with tensor parallelism, all of it divided by t with sequence parallelism, 34 s b h / t without the
// attention core, 2 s b h with full recomputation.
TEST(LayoutMemory, activations_follow_the_published_formulas) {
  const ModelShape model = with_dropout("gpt-22b");
  const double s = 2048;
  const double b = 4;
  const double h = 6144;
  const double a = 64;
  const auto bytes = [&](int tensor, bool sequence, Recompute recompute) {
    PlanLayout layout;
    layout.tensor = tensor;
    layout.micro_batch = 4;
    layout.sequence_parallel = sequence;
    layout.recompute = recompute;
    layout.precision = Precision::fp16;
    return activation_bytes_per_layer(model, layout, unfused(), 2048);
  };
  EXPECT_DOUBLE_EQ(bytes(1, false, Recompute::none), s * b * h * (34 + 5 * a * s / h));
  EXPECT_DOUBLE_EQ(bytes(8, false, Recompute::none), s * b * h * (10 + 24.0 / 8 + 5 * a * s / (h * 8)));
  EXPECT_DOUBLE_EQ(bytes(8, true, Recompute::none), s * b * h / 8 * (34 + 5 * a * s / h));
  EXPECT_DOUBLE_EQ(bytes(8, true, Recompute::selective), s * b * h * 34 / 8);
  EXPECT_DOUBLE_EQ(bytes(8, false, Recompute::full), s * b * h * 2);
}

// Of the same paper's abstract: both techniques together take 5 times less than tensor parallelism alone.
TEST(LayoutMemory, selective_recomputation_saves_what_was_published) {
  for (const char* name : {"gpt3-175b", "gpt-530b"}) {
    PlanLayout layout;
    layout.tensor = 8;
    const ModelShape model = with_dropout(name);
    const double without = activation_bytes_per_layer(model, layout, unfused(), 2048);
    layout.sequence_parallel = true;
    layout.recompute = Recompute::selective;
    EXPECT_NEAR(without / activation_bytes_per_layer(model, layout, unfused(), 2048), 5, 0.5) << name;
  }
}

TEST(LayoutMemory, blocks_are_spread_evenly) {
  EXPECT_EQ(blocks_per_part(12, 4), (std::vector<Index>{3, 3, 3, 3}));
  EXPECT_EQ(blocks_per_part(22, 8),
            (std::vector<Index>{2, 3, 3, 3, 3, 3, 3, 2}));  // Qi et al. 2023: one fewer at both ends
  for (const int parts : {1, 2, 3, 5, 7, 9}) {
    const std::vector<Index> blocks = blocks_per_part(37, parts);
    EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), Index{0}), 37);
    EXPECT_EQ(blocks.size(), static_cast<std::size_t>(parts));
  }
}

// The first stage of 1F1B holds p micro-batches, the last one; both hold the table of a tied model.
TEST(LayoutMemory, stages_differ_as_the_schedule_says) {
  PlanLayout layout;
  layout.pipeline = 4;
  layout.global_batch = 16;
  const auto memory = layout_memory(model_preset("gpt2-1558m"), layout, {}, 1024);
  const double first = static_cast<double>(memory[0][Category::activations]);
  EXPECT_NEAR(first / static_cast<double>(memory[1][Category::activations]), 4.0 / 3, 0.01);
  EXPECT_EQ(memory[1][Category::weights], memory[2][Category::weights]);
  EXPECT_EQ(memory[1][Category::weights], 2 * 12 * 30740800u / 1);  // 12 blocks of 30,740,800 elements in bf16
  EXPECT_NEAR(static_cast<double>(memory[3][Category::weights] - memory[1][Category::weights]), 2 * 1600 * 50257, 1e4);
}

// What `train` allocates for the same layout: states exactly, activations of the slots within 2 %.
TEST(LayoutMemory, agrees_with_what_train_allocates) {
  for (const auto& [tensor, pipeline, recompute] :
       {std::tuple(1, 1, "none"), std::tuple(2, 1, "none"), std::tuple(1, 2, "none"), std::tuple(2, 2, "selective"),
        std::tuple(1, 2, "full"), std::tuple(1, 1, "selective")}) {
    const int ranks = 2 * tensor * pipeline;
    const RunConfig config = parse_run_config(
        "", "test",
        {"model.preset=gpt2-124m", "batch.global_batch_size=32", "batch.micro_batch_size=4", "data.train=[\"x\"]",
         "run.steps=1", "precision.compute=bf16", fmt::format("parallel.tensor={}", tensor),
         fmt::format("parallel.pipeline={}", pipeline), fmt::format("parallel.recompute={}", recompute),
         pipeline > 1 ? "parallel.layers_per_stage=[6, 6]" : "parallel.layers_per_stage=[]"},
        ranks);
    const auto exact = predict_memory(config, make_run_layout(config, ranks));
    PlanLayout layout;
    layout.tensor = tensor;
    layout.pipeline = pipeline;
    layout.data = 2;
    layout.micro_batch = 4;
    layout.global_batch = 32;
    layout.recompute = *parse_recompute(recompute);
    const auto planned = layout_memory(model_preset("gpt2-124m"), layout, espalier_implementation(), 1024);
    ASSERT_EQ(planned.size(), exact.size());
    for (std::size_t stage = 0; stage < exact.size(); ++stage) {
      const auto ratio = [&](Category category) {
        return static_cast<double>(planned[stage][category]) / static_cast<double>(exact[stage][category]);
      };
      const std::string where = fmt::format("t{} p{} {} stage {}", tensor, pipeline, recompute, stage);
      EXPECT_NEAR(ratio(Category::weights), 1, 0.005) << where;
      EXPECT_NEAR(ratio(Category::gradients), 1, 0.005) << where;
      EXPECT_NEAR(ratio(Category::optimizer), 1, 0.005) << where;
      EXPECT_NEAR(ratio(Category::activations), 1, 0.02) << where;
      EXPECT_NEAR(static_cast<double>(planned[stage].total()) / static_cast<double>(exact[stage].total()), 1, 0.05)
          << where << ": workspace " << ratio(Category::workspace) << ", communication "
          << ratio(Category::communication);
    }
  }
}

// 8 heads of keys and values: with 8 tensor ranks each has one, with 16 two have copies of the same.
TEST(LayoutMemory, tensor_ranks_beyond_the_kv_heads_have_copies) {
  const ModelShape model = model_preset("llama3-70b");
  EXPECT_EQ(kv_size_on_rank(model, {.tensor = 4}), 2 * 128);
  EXPECT_EQ(kv_size_on_rank(model, {.tensor = 8}), 128);
  EXPECT_EQ(kv_size_on_rank(model, {.tensor = 16}), 128);
  const double norms = 2.0 * 8192;
  const auto weights = [&](int tensor) { return parameters_per_layer_on_rank(model, {.tensor = tensor}) - norms; };
  EXPECT_DOUBLE_EQ(8 * weights(8), weights(1));
  EXPECT_DOUBLE_EQ(16 * weights(16) - weights(1), 8 * 2 * 128.0 * 8192);  // eight more heads of both
}

}  // namespace
