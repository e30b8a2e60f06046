// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts against arithmetic by hand, from the shapes that Mixtral 8x7B and DeepSeek-V3 publish.
#include <gtest/gtest.h>

#include <cmath>

#include "models/cost.hpp"
#include "planning/collective_time.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/layer_time.hpp"
#include "planning/runnable.hpp"
#include "tests/planning/problems.hpp"
#include "tests/published/published_memory.hpp"

namespace espalier {
namespace {

using test::layout_of;

// The model of one token: its ffn_hidden_size is the width of all experts that it goes through.
ModelConfig model_of(Index layers, Index hidden, Index heads, Index kv_heads, Index ffn, Index vocabulary) {
  ModelConfig model{.max_sequence_length = 0};
  model.num_layers = layers;
  model.hidden_size = hidden;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  model.ffn_hidden_size = ffn;
  model.vocab_size = vocabulary;
  model.activation = "swiglu";
  model.norm = Norm::rmsnorm;
  model.bias = false;
  model.tied_embeddings = false;
  model.positions = Positions::rotary;
  return model;
}

Implementation with_experts(Experts experts) {
  Implementation program;
  program.shards_tables = true;
  program.experts = experts;
  return program;
}

// Of Mixtral 8x7B a block has queries and outputs 2 x 4096^2, keys and values 2 x 4096 x 1024, norms 2 x 4096, and 8
// experts of 3 x 4096 x 14336; two tables of 32000 x 4096 and a norm lie outside.
constexpr double mixtral_attention = 2.0 * 4096 * 4096 + 2.0 * 4096 * 1024;
constexpr double mixtral_expert = 3.0 * 4096 * 14336;
constexpr double mixtral_outside = 2.0 * 32000 * 4096 + 4096;
ModelConfig mixtral() { return model_of(32, 4096, 32, 8, 2 * 14336, 32000); }

TEST(Experts, mixtral_has_the_published_parameters) {
  constexpr double routers = 32.0 * 4096 * 8;  // which are not priced
  const double active = static_cast<double>(num_parameters(mixtral()));
  EXPECT_EQ(active, 32 * (mixtral_attention + 2 * 4096 + 2 * mixtral_expert) + mixtral_outside);
  EXPECT_EQ(active + routers, 12'879'925'248);
  const double all = 32 * parameters_per_layer_on_rank(mixtral(), {}, {.count = 8, .of_token = 2}) + mixtral_outside;
  EXPECT_EQ(all, 32 * (mixtral_attention + 2 * 4096 + 8 * mixtral_expert) + mixtral_outside);
  EXPECT_EQ(all + routers, 46'702'792'704);
}

// A token's work is that of its two experts: 6 FLOPs a weight of a product, and 12 L h s of attention.
TEST(Experts, a_token_takes_the_work_of_its_experts) {
  const double products = 32 * (mixtral_attention + 2 * mixtral_expert) + 32000.0 * 4096;
  EXPECT_DOUBLE_EQ(model_flops_per_token(mixtral(), 4096), 6 * products + 12.0 * 32 * 4096 * 4096);
}

TEST(Experts, ranks_that_share_experts_hold_their_part_of_them) {
  for (const int ranks : {1, 2, 4, 8}) {
    const Experts experts{.count = 8, .of_token = 2, .parallel = ranks};
    EXPECT_EQ(expert_parameters_on_rank(mixtral(), {}, experts), 8 / ranks * mixtral_expert);
    EXPECT_EQ(parameters_per_layer_on_rank(mixtral(), {}, experts),
              mixtral_attention + 2 * 4096 + 8 / ranks * mixtral_expert);
    // 64 replicas under ZeRO-1: all share the optimizer of what they have alike, 64 / ranks that of an expert.
    const double others = 32 * (mixtral_attention + 2 * 4096) + mixtral_outside;
    const double held = 32 * (8.0 / ranks) * mixtral_expert;
    const MemoryByCategory memory =
        published_memory(
            {.model = mixtral(), .cluster = {}, .implementation = with_experts(experts), .sequence_length = 4096}, {},
            layout_of("data=64,zero=1", 64))
            .front();
    EXPECT_NEAR(static_cast<double>(memory[Category::weights]), 2 * (others + held), 1);
    EXPECT_NEAR(static_cast<double>(memory[Category::optimizer]), 12 * (others / 64 + held / (64.0 / ranks)), 1);
  }
}

// 256 experts of 3 x 7168 x 2048, of which a token goes through 8.
TEST(Experts, deepseek_v3_holds_four_experts_a_layer_on_64_ranks) {
  const ModelConfig model = model_of(61, 7168, 128, 128, 8 * 2048, 129280);
  constexpr double expert = 3.0 * 7168 * 2048;
  EXPECT_EQ(expert_parameters_on_rank(model, {}, {.count = 256, .of_token = 8, .parallel = 64}), 4 * expert);
  EXPECT_EQ(61 * expert_parameters_on_rank(model, {}, {.count = 256, .of_token = 8}), 61 * 256 * expert);
}

// Rows go to their experts and come back: 4096 rows x 2 experts x 4096 channels x 2 bytes of Mixtral on the 8 devices
// of a node, 4096 x 8 x 7168 x 2 bytes of DeepSeek-V3 on 64 devices of 8 nodes, of which 56 are reached by a card each.
TEST(Experts, rows_are_sent_to_their_experts_and_back) {
  const Cluster cluster = cluster_preset("h100:8");
  const Layout layout = layout_of("data=64", 64);
  const auto sent = [&](const ModelConfig& model, Experts experts) {
    const auto seconds = [&](int ranks) {
      experts.parallel = ranks;
      return block_time(model, cluster, layout, with_experts(experts), 4096).forward.tensor;
    };
    const int ranks = experts.parallel;
    return seconds(ranks) - seconds(1);
  };
  const double bytes = 4096.0 * 2 * 4096 * 2;
  const double node = 3 * cluster.node.latency + bytes * 7 / 8 / cluster.node.bandwidth;
  EXPECT_DOUBLE_EQ(sent(mixtral(), {.count = 8, .of_token = 2, .parallel = 8}), 2 * node);
  const double more = 4096.0 * 8 * 7168 * 2;
  const double nodes =
      3 * cluster.node.latency + 7 * cluster.network.latency + more * 56 / 64 / cluster.network.bandwidth;
  EXPECT_DOUBLE_EQ(sent(model_of(61, 7168, 128, 128, 8 * 2048, 129280), {.count = 256, .of_token = 8, .parallel = 64}),
                   2 * nodes);
}

TEST(Experts, train_has_none) {
  PlanProblem problem = test::problem_of("llama3-8b", "h100");
  EXPECT_EQ(why_not_runnable(problem, layout_of("data=8", 8)), "");
  problem.implementation.experts = {.count = 8, .of_token = 2};
  EXPECT_EQ(why_not_runnable(problem, layout_of("data=8", 8)), "train has no mixture of experts yet");
}

}  // namespace
}  // namespace espalier
