// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts against arithmetic by hand, from the shapes that Mixtral 8x7B and DeepSeek-V3 publish.
#include <gtest/gtest.h>

#include <cmath>

#include "models/cost.hpp"
#include "planning/collective_time.hpp"
#include "planning/expert_time.hpp"
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
  const double all =
      32 * layer_elements(mixtral(), {}, {.experts = {.count = 8, .of_token = 2}}).block + mixtral_outside;
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
    EXPECT_EQ(layer_elements(mixtral(), {}, {.experts = experts}).experts, 8.0 / ranks * mixtral_expert);
    EXPECT_EQ(layer_elements(mixtral(), {}, {.experts = experts}).block,
              mixtral_attention + 2 * 4096 + 8.0 / ranks * mixtral_expert);
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
  EXPECT_EQ(layer_elements(model, {}, {.experts = {.count = 256, .of_token = 8, .parallel = 64}}).experts, 4 * expert);
  EXPECT_EQ(61 * layer_elements(model, {}, {.experts = {.count = 256, .of_token = 8}}).experts, 61 * 256 * expert);
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

// With 8 of 128 experts on 8 ranks of a node a row goes to 8 (1 - (7/8)^8) = 5.25 of them, and not 8 times; of 4 nodes
// to 3.6, of which 2.7 are others.
TEST(Experts, a_row_is_sent_once_to_each_place) {
  const Cluster cluster = cluster_preset("h100:4");
  const auto seconds = [&](int ranks, bool once) { return all_to_all_seconds(cluster, {.size = ranks}, 1e9, 8, once); };
  EXPECT_NEAR(seconds(8, true) / seconds(8, false), 1 - std::pow(7.0 / 8, 8), 2e-3);
  const double nodes = 4 * (1 - std::pow(3.0 / 4, 8)) * 3 / 4;
  EXPECT_NEAR(seconds(32, true), nodes * 1e9 / cluster.network.bandwidth, 1e-3);
  EXPECT_NEAR(seconds(32, false), 8 * 0.75 * 1e9 / cluster.network.bandwidth, 1e-3);
}

// The inner dimension of a product is that of one expert: narrow ones are slower for as much work.
TEST(Experts, narrow_experts_are_slower) {
  const Cluster cluster = cluster_preset("h100");
  const Layout layout = layout_of("data=8,micro_batch=8", 64);
  const auto products = [&](Experts experts, Index ffn) {
    const ModelConfig model = model_of(48, 2048, 32, 4, ffn, 151936);
    return block_time(model, cluster, layout, with_experts(experts), 4096).forward.products;
  };
  EXPECT_GT(products({.count = 128, .of_token = 8}, 8 * 768), 1.01 * products({.count = 16, .of_token = 1}, 8 * 768));
}

// What other ranks hold of an expert is gathered from them alone: under ZeRO-3 nothing where each holds other experts.
TEST(Experts, weights_are_gathered_among_the_ranks_that_hold_them) {
  const Layout layout = layout_of("data=16,zero=3", 16);
  EXPECT_EQ(expert_axis(layout, {.count = 8, .of_token = 2, .parallel = 8}).size, 2);
  EXPECT_EQ(expert_axis(layout, {.count = 16, .of_token = 2, .parallel = 16}).size, 1);
  EXPECT_EQ(expert_axis(layout, {.count = 8, .of_token = 2}).size, 16);
  EXPECT_EQ(expert_axis(layout_of("data=8,tensor=2,zero=3", 16), {.count = 8, .of_token = 2, .parallel = 8}).size, 2);
}

// Whole experts are not cut by the tensor ranks, which send rows of their own; the feed-forward has no all_reduce then.
TEST(Experts, tensor_ranks_share_whole_experts) {
  const Layout layout = layout_of("data=8,tensor=2,sequence_parallel=1", 16);
  EXPECT_EQ(layer_elements(mixtral(), layout, {.experts = {.count = 8, .of_token = 2}}).experts, 4 * mixtral_expert);
  EXPECT_EQ(layer_elements(mixtral(), layout, {.experts = {.count = 8, .of_token = 2, .parallel = 8}}).experts,
            mixtral_expert);
}

// Of the all_gathers and reduce_scatters of a block half are the feed-forward's.
TEST(Experts, whole_experts_need_no_tensor_collectives) {
  const Cluster cluster = cluster_preset("h100");
  const Layout layout = layout_of("data=4,tensor=2,sequence_parallel=1", 8);
  const auto tensor = [&](const Implementation& program) {
    return block_time(mixtral(), cluster, layout, program, 4096).forward.tensor;
  };
  const Implementation whole = with_experts({.count = 8, .of_token = 2, .parallel = 8});
  EXPECT_NEAR(tensor(whole) - expert_time(mixtral(), cluster, layout, whole, 4096).messages,
              tensor(with_experts({.count = 8, .of_token = 2})) / 2, 1e-9);
}

TEST(Experts, a_program_may_send_a_row_once) {
  const Cluster cluster = cluster_preset("h100:4");
  const ModelConfig model = model_of(48, 2048, 32, 4, 8 * 768, 151936);
  Implementation program = with_experts({.count = 128, .of_token = 8, .parallel = 32});
  const double each = expert_time(model, cluster, layout_of("data=32", 32), program, 4096).messages;
  program.sends_rows_once = true;
  EXPECT_LT(expert_time(model, cluster, layout_of("data=32", 32), program, 4096).messages, 0.6 * each);
}

// Few rows: the weights of all experts of a rank are read for them, 32 of 3 x 7168 x 2048 in 16 bits.
TEST(Experts, each_expert_is_read) {
  const Cluster cluster = cluster_preset("h100");
  const ModelConfig model = model_of(61, 7168, 128, 128, 8 * 2048, 129280);
  const Implementation program = with_experts({.count = 256, .of_token = 8, .parallel = 8});
  const double bytes = 32 * 3.0 * 7168 * 2048 * 2;
  EXPECT_GT(expert_time(model, cluster, layout_of("data=8", 8), program, 64).forward,
            traffic_seconds(cluster.device, bytes));
}

TEST(Experts, messages_may_go_beside_other_work) {
  const Cluster cluster = cluster_preset("h100:4");
  const Layout layout = layout_of("data=32", 32);
  Implementation program = with_experts({.count = 128, .of_token = 8, .parallel = 32});
  const auto sent = [&] {
    return block_time(model_of(48, 2048, 32, 4, 8 * 768, 151936), cluster, layout, program, 4096).forward.tensor;
  };
  const double alone = sent();
  program.overlaps_experts = true;
  EXPECT_LT(sent(), 0.8 * alone);
  EXPECT_GT(sent(), 0);
}

TEST(Experts, train_has_none) {
  PlanProblem problem = test::problem_of("llama3-8b", "h100");
  EXPECT_EQ(why_not_runnable(problem, layout_of("data=8", 8)), "");
  problem.implementation.experts = {.count = 8, .of_token = 2};
  EXPECT_EQ(why_not_runnable(problem, layout_of("data=8", 8)), "train has no mixture of experts yet");
}

}  // namespace
}  // namespace espalier
