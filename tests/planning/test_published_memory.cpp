// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "models/presets.hpp"
#include "planning/layer_parameters.hpp"
#include "tests/planning/problems.hpp"
#include "tests/published/published_memory.hpp"

using namespace espalier;
using espalier::test::layout_of;

namespace {

ModelConfig with_dropout(const char* name) {
  ModelConfig model = model_preset(name);
  model.embedding_dropout = model.attention_dropout = model.residual_dropout = 0.1;
  return model;
}

// A program with unfused attention.
PlanProblem unfused(const ModelConfig& model) {
  PlanProblem problem{.model = model, .cluster = {}, .implementation = {}, .sequence_length = 2048};
  problem.implementation.fused_attention = false;
  problem.implementation.recomputes_attention = true;
  return problem;
}

// Rajbhandari et al. 2020, Table 1 and section 3.1: 16 bytes a parameter; 7.5B parameters on 64 ranks take 120, 31.4,
// 16.6 and 1.9 GB (of 10^9 bytes) with none, the optimizer, gradients, all sharded.
TEST(PublishedMemory, states_follow_the_zero_paper) {
  const PublishedStates whole = published_states(Precision::fp16, 2);
  const auto gigabytes = [&](double billions, int stage, double ranks) {
    return billions * sharded_states(whole, stage, ranks).total();
  };
  EXPECT_NEAR(gigabytes(7.5, 0, 64), 120, 0.05);
  EXPECT_NEAR(gigabytes(7.5, 1, 64), 31.4, 0.05);
  EXPECT_NEAR(gigabytes(7.5, 2, 64), 16.6, 0.05);
  EXPECT_NEAR(gigabytes(7.5, 3, 64), 1.88, 0.01);
  EXPECT_NEAR(gigabytes(128, 1, 16), 608, 0.5);
  EXPECT_NEAR(gigabytes(1000, 3, 1024), 15.6, 0.05);
}

// Megatron-LM's distributed optimizer: bf16 weights with fp32 gradients 18, or 6 + 12/d; fp32 16, or 8 + 8/d.
TEST(PublishedMemory, states_follow_the_distributed_optimizer) {
  const PublishedStates bf16 = published_states(Precision::bf16, 4);
  EXPECT_EQ(bf16.total(), 18);
  EXPECT_EQ(sharded_states(bf16, 1, 4).total(), 6 + 12.0 / 4);
  const PublishedStates fp32 = published_states(Precision::fp32, 4);
  EXPECT_EQ(sharded_states(fp32, 1, 4).total(), 8 + 8.0 / 4);
}

// Korthikanti et al. 2022, Table 2, bytes a layer: s b h (34 + 5 a s / h) without parallelism, s b h (10 + 24/t + 5 a s
// / (h t)) with tensor parallelism, all of it divided by t with sequence parallelism, 34 s b h / t without the
// attention core, 2 s b h with full recomputation.
TEST(PublishedMemory, activations_follow_the_published_formulas) {
  const ModelConfig model = with_dropout("gpt-22b");
  const double s = 2048;
  const double b = 4;
  const double h = 6144;
  const double a = 64;
  const auto bytes = [&](int tensor, bool sequence, Recompute recompute) {
    Layout layout;
    layout.tensor = tensor;
    layout.micro_batch = 4;
    layout.sequence_parallel = sequence;
    layout.recompute = recompute;
    layout.precision = Precision::fp16;
    return activation_bytes_per_layer(unfused(model), {}, layout);
  };
  EXPECT_DOUBLE_EQ(bytes(1, false, Recompute::none), s * b * h * (34 + 5 * a * s / h));
  EXPECT_DOUBLE_EQ(bytes(8, false, Recompute::none), s * b * h * (10 + 24.0 / 8 + 5 * a * s / (h * 8)));
  EXPECT_DOUBLE_EQ(bytes(8, true, Recompute::none), s * b * h / 8 * (34 + 5 * a * s / h));
  EXPECT_DOUBLE_EQ(bytes(8, true, Recompute::selective), s * b * h * 34 / 8);
  EXPECT_DOUBLE_EQ(bytes(8, false, Recompute::full), s * b * h * 2);
}

// Of the same paper's abstract: both techniques together take 5 times less than tensor parallelism alone.
TEST(PublishedMemory, selective_recomputation_saves_what_was_published) {
  for (const char* name : {"gpt3-175b", "gpt-530b"}) {
    Layout layout;
    layout.tensor = 8;
    const ModelConfig model = with_dropout(name);
    const double without = activation_bytes_per_layer(unfused(model), {}, layout);
    layout.sequence_parallel = true;
    layout.recompute = Recompute::selective;
    EXPECT_NEAR(without / activation_bytes_per_layer(unfused(model), {}, layout), 5, 0.5) << name;
  }
}

// Rajbhandari et al. 2020, 5.2: a gradient is dropped once it is reduced to its owner, so beside its share of all a
// rank has those of the block at work whole; of ZeRO-1 it has all of them, and of ZeRO-3 those of that block.
TEST(PublishedMemory, zero_2_has_the_gradients_of_the_block_at_work) {
  const ModelConfig model = model_preset("gpt-22b");
  const PlanProblem problem{.model = model, .cluster = {}, .implementation = {}, .sequence_length = 2048};
  const auto bytes = [&](const char* text, Category category) {
    return static_cast<double>(published_memory(problem, {}, layout_of(text, 64))[0][category]);
  };
  const double block = 4 * layer_elements(model, {}, {}).block;
  const double workspace = bytes("data=8,zero=1", Category::workspace);
  EXPECT_NEAR(bytes("data=8,zero=2", Category::workspace) - workspace, block, 1);
  EXPECT_NEAR(bytes("data=8,zero=3", Category::workspace) - workspace, block, 1);
  EXPECT_NEAR(bytes("data=8,zero=2", Category::gradients), bytes("data=8,zero=1", Category::gradients) / 8, 1);
  EXPECT_EQ(bytes("data=1,zero=2", Category::workspace), workspace) << "one rank owns all gradients";
}

}  // namespace
