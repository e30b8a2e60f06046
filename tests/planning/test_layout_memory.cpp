// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

#include "core/ops/cudnn_parts.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/types.hpp"
#include "models/logit_rows.hpp"
#include "models/presets.hpp"
#include "planning/layout_limits.hpp"
#include "tests/planning/config_of_layout.hpp"
#include "tests/planning/problems.hpp"
#include "training/predict_memory.hpp"

using namespace espalier;
using espalier::test::config_of_layout;
using espalier::test::layout_of;

namespace {

ModelConfig with_dropout(const char* name) {
  ModelConfig model = model_preset(name);
  model.embedding_dropout = model.attention_dropout = model.residual_dropout = 0.1;
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
    Layout layout;
    layout.tensor = 8;
    const ModelConfig model = with_dropout(name);
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
  Layout layout;
  layout.pipeline = 4;
  layout.global_batch = 16;
  const auto memory = layout_memory(model_preset("gpt2-1558m"), layout, {}, 1024);
  const double first = static_cast<double>(memory[0][Category::activations]);
  EXPECT_NEAR(first / static_cast<double>(memory[1][Category::activations]), 4.0 / 3, 0.01);
  EXPECT_EQ(memory[1][Category::weights], memory[2][Category::weights]);
  EXPECT_EQ(memory[1][Category::weights], 2 * 12 * 30740800u / 1);  // 12 blocks of 30,740,800 elements in bf16
  EXPECT_NEAR(static_cast<double>(memory[3][Category::weights] - memory[1][Category::weights]), 2 * 1600 * 50257, 1e4);
}

// Whatever plans, it is the planned device that decides how many logits exist at once.
TEST(LayoutMemory, a_gpu_has_more_logits_at_a_time) {
  const Layout layout = layout_of("micro_batch=8", 8);
  const auto workspace = [&](bool on_host) {
    const auto memory = layout_memory(model_preset("gpt2-124m"), layout, espalier_implementation(on_host), 1024);
    return static_cast<double>(memory[0][Category::workspace]);
  };
  const auto attention = static_cast<double>(cudnn_workspace_bound({8, 1024, 12, 64, 12}));
  EXPECT_NEAR(workspace(false) - workspace(true), (4096.0 * 50304 - 328.0 * 50257) * 2 + attention,
              1e6);  // 2 pieces instead of 25
}

// What `train` pads on a GPU: logits to lines of 128 bytes, and the token table to as many rows, of zeros.
TEST(LayoutMemory, a_gpu_has_rows_of_zeros_in_the_token_table) {
  const ModelConfig model = model_preset("gpt2-124m");
  const Implementation on_host = espalier_implementation(true);
  Implementation on_gpu = on_host;
  on_gpu.logit_multiple = espalier_implementation(false).logit_multiple;
  for (const auto& [text, ours, rows] : {std::tuple("micro_batch=4", Index{50257}, Index{47}),
                                         std::tuple("micro_batch=4,tensor=2", Index{25129}, Index{23})}) {
    SCOPED_TRACE(text);
    const Layout layout = layout_of(text, 4);
    EXPECT_EQ(vocabulary_on_rank(model, layout, on_host), ours);
    EXPECT_EQ(vocabulary_on_rank(model, layout, on_gpu), ours + rows);
    Parameter table;
    table.spec.row_multiple = logit_multiple_on_gpu;
    table.local_shape = {ours, 768};
    EXPECT_EQ(table.padded_rows(), ours + rows) << "what the store of parameters makes of it";
    const auto more = [&](Category category) {
      return layout_memory(model, layout, on_gpu, 1024)[0][category] -
             layout_memory(model, layout, on_host, 1024)[0][category];
    };
    const auto elements = static_cast<std::size_t>(rows) * 768;
    EXPECT_EQ(more(Category::weights), 2 * elements);
    EXPECT_EQ(more(Category::gradients), 4 * elements);
    EXPECT_EQ(more(Category::optimizer), 12 * elements);
    const Index logits = logit_rows(4096, model.vocab_size, layout.tensor, most_logits_on_host) * rows;
    EXPECT_EQ(more(Category::workspace), 2 * static_cast<std::size_t>(logits));
  }
  EXPECT_EQ(vocabulary_on_rank(model_preset("llama3-8b"), layout_of("tensor=8", 8), on_gpu), 128256 / 8 + 32);
}

// cuDNN's attention has a workspace, in 16 bits and on GPUs.
TEST(LayoutMemory, attention_through_cudnn_has_a_workspace) {
  const ModelConfig model = model_preset("gpt2-124m");
  const Implementation on_gpu = espalier_implementation(false);
  Implementation own = on_gpu;
  own.cudnn_attention = false;
  const auto held = [&](const char* text, const Implementation& implementation) {
    return attention_workspace_on_rank(model, layout_of(text, 16), implementation, 1024);
  };
  EXPECT_EQ(held("micro_batch=4", on_gpu), cudnn_workspace_bound({4, 1024, 12, 64, 12}));
  EXPECT_EQ(held("micro_batch=4,tensor=2,precision=fp16", on_gpu), cudnn_workspace_bound({4, 1024, 6, 64, 6}));
  EXPECT_EQ(held("micro_batch=4,precision=fp32", on_gpu), 0u);
  EXPECT_EQ(held("micro_batch=4", own), 0u);
  EXPECT_EQ(held("micro_batch=4", espalier_implementation(true)), 0u);
  ModelConfig dropping = model;
  dropping.attention_dropout = 0.1;
  EXPECT_EQ(attention_workspace_on_rank(dropping, layout_of("micro_batch=4", 16), on_gpu, 1024), 0u) << "not by cuDNN";
  const ModelConfig grouped = model_preset("llama3-8b");  // tensor ranks beyond its 8 heads of keys hold one each
  EXPECT_EQ(attention_workspace_on_rank(grouped, layout_of("micro_batch=1,tensor=2", 16), on_gpu, 4096),
            cudnn_workspace_bound({1, 4096, 16, 128, 4}));
  EXPECT_EQ(attention_workspace_on_rank(grouped, layout_of("micro_batch=1,tensor=16", 16), on_gpu, 4096),
            cudnn_workspace_bound({1, 4096, 2, 128, 1}));
  const Layout stages = layout_of("pipeline=2,micro_batch=4", 16);
  const auto with = layout_memory(model, stages, on_gpu, 1024);
  const auto without = layout_memory(model, stages, own, 1024);
  for (std::size_t stage = 0; stage < 2; ++stage)
    EXPECT_EQ(with[stage][Category::workspace] - without[stage][Category::workspace],
              cudnn_workspace_bound({4, 1024, 12, 64, 12}));
}

// Stages of a plan against what `train` lays out for the config of that plan: its own sums, without memory.
void expect_memory_of_train(const std::string& model, const std::string& text, Index global_batch,
                            Index sequence_length = 0) {
  SCOPED_TRACE(model + " " + text);
  // "...,shard_over=node": of four replicas on a node.
  Cluster cluster = cluster_preset("a100-80");
  cluster.devices_per_node = 4 * layout_of(text.c_str(), global_batch).tensor;
  const Layout layout = with_shards(layout_of(text.c_str(), global_batch), cluster);
  ModelConfig shape = model_preset(model);
  if (sequence_length > 0)
    shape.max_sequence_length = sequence_length;
  RunConfig config = config_of_layout(shape, layout);
  config.ranks_per_node = cluster.devices_per_node;
  const auto exact = predict_memory(config, make_run_layout(config, layout.num_devices()));
  Implementation implementation = espalier_implementation(exec_is_host);
  implementation.cudnn_attention = false;  // what it wants only cuDNN knows, where there is a GPU
  const auto planned = layout_memory(shape, layout, implementation, shape.max_sequence_length);
  const double products = static_cast<double>(matmul_workspace_bytes<bfloat16>(default_matmul_library<bfloat16>()));
  ASSERT_EQ(planned.size(), exact.size());
  for (std::size_t stage = 0; stage < exact.size(); ++stage) {
    SCOPED_TRACE(fmt::format("stage {}", stage));
    const auto expect_near = [&](Category category, double share) {
      const double wanted =
          static_cast<double>(exact[stage][category]) - (category == Category::workspace ? products : 0);
      EXPECT_NEAR(static_cast<double>(planned[stage][category]), wanted, share * wanted) << to_string(category);
    };
    // Nearer than the rows of zeros that a GPU's token table has.
    // Slices end where rows do: the replica with most of them has little more.
    for (const Category category : {Category::weights, Category::gradients, Category::optimizer, Category::workspace})
      expect_near(category, layout.zero_stage < 2 ? 0.0005 : 0.005);
    expect_near(Category::activations, 0.01);
    const double total = static_cast<double>(exact[stage].total()) - products;
    EXPECT_NEAR(static_cast<double>(planned[stage].total()), total, 0.01 * total);
  }
}

TEST(LayoutMemory, agrees_with_what_train_allocates) {
  for (const char* const layout :
       {"data=2", "data=2,tensor=2", "data=2,pipeline=2", "data=2,tensor=2,pipeline=2,recompute=selective",
        "data=2,pipeline=2,recompute=full", "data=2,recompute=selective", "data=2,tensor=2,sequence_parallel=1"})
    expect_memory_of_train("gpt2-124m", std::string(layout) + ",micro_batch=4", 32);
}

TEST(LayoutMemory, agrees_for_every_family) {
  for (const char* const model : {"smollm2-360m", "llama-3.2-1b", "mistral-7b", "qwen2.5-0.5b", "qwen3-0.6b"})
    for (const char* const layout : {"data=2", "data=2,pipeline=2,recompute=selective", "pipeline=2,recompute=full"})
      expect_memory_of_train(model, std::string(layout) + ",micro_batch=4", 32, 1024);
  for (const char* const zero : {"zero=2", "zero=3"})
    for (const char* const layout : {"data=4", "data=8,pipeline=2", "data=4,tensor=2,sequence_parallel=1"})
      expect_memory_of_train("llama-3.2-1b", fmt::format("{},{},recompute=full,micro_batch=1", layout, zero), 32, 1024);
  for (const char* const zero : {"zero=1", "zero=2", "zero=3"})
    for (const char* const layout : {"data=8", "data=8,pipeline=2", "data=8,tensor=2,sequence_parallel=1"})
      expect_memory_of_train("llama-3.2-1b",
                             fmt::format("{},{},shard_over=node,recompute=full,micro_batch=1", layout, zero), 32, 1024);
  for (const char* const model : {"llama-3.2-1b", "mistral-7b", "qwen3-0.6b"})
    expect_memory_of_train(model, "data=2,tensor=4,sequence_parallel=1,zero=1,micro_batch=4", 32, 1024);
  expect_memory_of_train("llama3-70b", "data=2,tensor=16,pipeline=4,recompute=full,micro_batch=1", 32, 4096);
}

// What waits for its weight part, and slots of several chunks: half as much again as without.
TEST(LayoutMemory, agrees_on_every_schedule) {
  for (const char* const schedule : {"schedule=1f1b", "schedule=zero_bubble", "virtual_stages=2", "virtual_stages=4"})
    for (const char* const recompute : {"none", "selective", "full"})
      for (const char* const tensor : {"", ",tensor=2", ",tensor=2,sequence_parallel=1", ",zero=1"})
        expect_memory_of_train("gpt2-774m",
                               fmt::format("data=2,pipeline=3,recompute={},{}{}", recompute, schedule, tensor), 36);
  expect_memory_of_train("gpt2-774m", "data=1,pipeline=3,zero=1,recompute=full", 36);  // nobody to share with
  expect_memory_of_train("gpt3-175b",
                         "data=2,tensor=8,pipeline=8,recompute=full,sequence_parallel=1,schedule=zero_bubble", 64);
  expect_memory_of_train("gpt3-175b",
                         "data=2,tensor=8,pipeline=8,recompute=selective,sequence_parallel=1,virtual_stages=4", 64);
}

// What fits by the plan fits by the sums of `train`, too: the margin covers what they have more.
TEST(LayoutMemory, what_fits_leaves_room_for_the_sums_of_train) {
  const ModelConfig shape = model_preset("gpt3-6.7b");
  const Layout layout = layout_of("data=4,tensor=2,zero=1,recompute=full", 32);
  const RunConfig config = config_of_layout(shape, layout);
  const std::size_t exact = predict_memory(config, make_run_layout(config, layout.num_devices())).front().total();
  PlanProblem problem{.model = shape,
                      .cluster = cluster_preset("a100-80"),
                      .implementation = espalier_implementation(exec_is_host),
                      .sequence_length = shape.max_sequence_length};
  problem.cluster.reserved_bytes = 0;
  const LayoutPrice price = price_layout(problem, layout);
  ASSERT_LT(price.memory_bytes, exact);
  problem.cluster.device.memory_bytes = static_cast<Index>(exact) - 1;
  EXPECT_THAT(why_too_large(problem, price), testing::HasSubstr("and perhaps "));
  problem.implementation.arenas_of_train = false;  // another program
  EXPECT_EQ(why_too_large(problem, price), "");
}

// 8 heads of keys and values: with 8 tensor ranks each has one, with 16 two have copies of the same.
TEST(LayoutMemory, tensor_ranks_beyond_the_kv_heads_have_copies) {
  const ModelConfig model = model_preset("llama3-70b");
  EXPECT_EQ(kv_size_on_rank(model, {.tensor = 4}), 2 * 128);
  EXPECT_EQ(kv_size_on_rank(model, {.tensor = 8}), 128);
  EXPECT_EQ(kv_size_on_rank(model, {.tensor = 16}), 128);
  const double norms = 2.0 * 8192;
  const auto weights = [&](int tensor) { return parameters_per_layer_on_rank(model, {.tensor = tensor}) - norms; };
  EXPECT_DOUBLE_EQ(8 * weights(8), weights(1));
  EXPECT_DOUBLE_EQ(16 * weights(16) - weights(1), 8 * 2 * 128.0 * 8192);  // eight more heads of both
}

// SwiGLU has gradients of gate and up where gelu has one, for all rows. What a later weight part reads beside them, the
// input of the way down, is as wide as without a gate.
TEST(LayoutMemory, a_gate_has_a_gradient_of_its_own) {
  ModelConfig model = model_preset("llama3-8b");
  ASSERT_TRUE(model.gated());
  const auto workspace = [&](bool gated, const Layout& layout) {
    model.activation = gated ? "swiglu" : "gelu";
    return static_cast<double>(layout_memory(model, layout, espalier_implementation(), 2048)[1][Category::workspace]);
  };
  const double column = 2 * 2048 * 14336.0 / 2;  // in bf16, of one micro-batch on one of two tensor ranks
  const Layout plain = layout_of("tensor=2,pipeline=4", 16);
  EXPECT_NEAR(workspace(true, plain) - workspace(false, plain), column, 1);
  const Layout split = layout_of("tensor=2,pipeline=4,schedule=zero_bubble", 16);
  EXPECT_NEAR(workspace(true, split) - workspace(false, split), 2 * 8 * column,
              1);  // two weight parts of 8 blocks wait
  const Layout again = layout_of("tensor=2,pipeline=4,schedule=zero_bubble,recompute=full", 16);
  // The block at work is filled again with one column more.
  EXPECT_NEAR(workspace(true, again) - workspace(false, again), (2 * 8 + 1) * column, 1);
}

// Rajbhandari et al. 2020, 5.2: a gradient is dropped once it is reduced to its owner, so beside its share of all a
// rank has those of the block at work whole; of ZeRO-1 it has all of them, and of ZeRO-3 those of that block.
TEST(LayoutMemory, zero_2_has_the_gradients_of_the_block_at_work) {
  const ModelConfig model = model_preset("gpt-22b");
  Implementation program;  // which shards the tables, too
  program.arenas_of_train = false;
  const auto bytes = [&](const char* text, Category category) {
    return static_cast<double>(layout_memory(model, layout_of(text, 64), program, 2048)[0][category]);
  };
  const double block = 4 * parameters_per_layer_on_rank(model, {});
  const double workspace = bytes("data=8,zero=1", Category::workspace);
  EXPECT_NEAR(bytes("data=8,zero=2", Category::workspace) - workspace, block, 1);
  EXPECT_NEAR(bytes("data=8,zero=3", Category::workspace) - workspace, block, 1);
  EXPECT_NEAR(bytes("data=8,zero=2", Category::gradients), bytes("data=8,zero=1", Category::gradients) / 8, 1);
  EXPECT_EQ(bytes("data=1,zero=2", Category::workspace), workspace) << "one rank owns all gradients";
}

TEST(LayoutMemory, the_peak_stage_has_the_peak) {
  const auto memory =
      layout_memory(model_preset("gpt-22b"), layout_of("pipeline=4", 16), espalier_implementation(), 2048);
  const std::size_t highest = memory[static_cast<std::size_t>(peak_stage(memory))].total();
  EXPECT_EQ(peak_bytes(memory), highest);
  for (const MemoryByCategory& stage : memory)
    EXPECT_LE(stage.total(), highest);
}

// More bytes than a counter holds: they must not come out as few.
TEST(LayoutMemory, what_no_device_could_hold_stays_much) {
  ModelConfig model = model_preset("gpt-1t");
  model.num_layers = 1 << 14;
  model.hidden_size = 1 << 18;
  model.ffn_hidden_size = 1 << 20;
  const Layout layout{.micro_batch = 1 << 24, .global_batch = 1 << 24};
  const std::size_t bytes = peak_bytes(layout_memory(model, layout, espalier_implementation(), 1 << 24));
  EXPECT_GT(bytes, std::size_t{1} << 57);
  EXPECT_LT(bytes, std::size_t{1} << 62);
}

}  // namespace
