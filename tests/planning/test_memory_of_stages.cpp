// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "core/ops/cudnn_parts.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/types.hpp"
#include "models/logit_rows.hpp"
#include "models/presets.hpp"
#include "planning/collective_time.hpp"
#include "planning/layout_limits.hpp"
#include "tests/planning/config_of_layout.hpp"
#include "tests/planning/problems.hpp"
#include "training/prediction/predict_memory.hpp"

using namespace espalier;
using espalier::test::config_of_layout;
using espalier::test::layout_of;

namespace {

PlanProblem problem_for(const ModelConfig& model, const Implementation& implementation, Index sequence_length) {
  return {.model = model, .cluster = {}, .implementation = implementation, .sequence_length = sequence_length};
}

std::vector<MemoryByCategory> memory_of(const ModelConfig& model, const Layout& layout,
                                        const Implementation& implementation, Index sequence_length) {
  return memory_of_stages(problem_for(model, implementation, sequence_length), layout);
}
std::vector<MemoryByCategory> memory_of(const char* model, const Layout& layout, const Implementation& implementation,
                                        Index sequence_length) {
  return memory_of(model_preset(model), layout, implementation, sequence_length);
}

// The first stage of 1F1B holds p micro-batches, the last one; both hold the table of a tied model.
TEST(MemoryOfStages, stages_differ_as_the_schedule_says) {
  Layout layout;
  layout.pipeline = 4;
  layout.global_batch = 16;
  layout.layers = {12, 12, 12, 12};
  const auto memory = memory_of("gpt2-1558m", layout, {}, 1024);
  const double first = static_cast<double>(memory[0][Category::activations]);
  EXPECT_NEAR(first / static_cast<double>(memory[1][Category::activations]), 4.0 / 3, 0.01);
  EXPECT_EQ(memory[1][Category::weights], memory[2][Category::weights]);
  EXPECT_NEAR(static_cast<double>(memory[1][Category::weights]), 2 * 12 * 30740800.0, 1e4);  // 12 blocks in bf16
  EXPECT_NEAR(static_cast<double>(memory[3][Category::weights] - memory[1][Category::weights]), 2 * 1600 * 50257, 1e4);
}

// Whatever plans, it is the planned device that decides how many logits exist at once.
TEST(MemoryOfStages, a_gpu_has_more_logits_at_a_time) {
  const Layout layout = layout_of("micro_batch=8", 8);
  const auto workspace = [&](bool on_host) {
    const auto memory = memory_of("gpt2-124m", layout, espalier_implementation(on_host), 1024);
    return static_cast<double>(memory[0][Category::workspace]);
  };
  const auto attention = static_cast<double>(cudnn_workspace_bound({8, 1024, 12, 64, 12}));
  const auto products = [](MatmulLibrary library) {
    return static_cast<double>(matmul_workspace_bytes(ScalarType::bf16, library));
  };
  EXPECT_NEAR(workspace(false) - workspace(true),
              (4096.0 * 50304 - 328.0 * 50257) * 2 + attention + products(MatmulLibrary::cublaslt) -
                  products(default_matmul_library(ScalarType::bf16)),
              1e6);  // 2 pieces instead of 25
}

// What `train` pads on a GPU: logits to lines of 128 bytes, and the token embedding to as many rows, of zeros.
TEST(MemoryOfStages, a_gpu_has_rows_of_zeros_in_the_token_embedding) {
  const ModelConfig model = model_preset("gpt2-124m");
  const Implementation on_host = espalier_implementation(true);
  Implementation on_gpu = on_host;
  on_gpu.logits.multiple = logits_on_gpu.multiple;
  for (const auto& [text, ours, rows] : {std::tuple("micro_batch=4", Index{50257}, Index{47}),
                                         std::tuple("micro_batch=4,tensor=2", Index{25129}, Index{23})}) {
    SCOPED_TRACE(text);
    const Layout layout = layout_of(text, 4);
    EXPECT_EQ(block_shape(model, layout, 1024, on_host.logits).logit_columns, ours);
    EXPECT_EQ(block_shape(model, layout, 1024, on_gpu.logits).logit_columns, ours + rows);
    Parameter table;
    table.spec.row_multiple = logits_on_gpu.multiple;
    table.local_shape = {ours, 768};
    EXPECT_EQ(table.padded_rows(), ours + rows) << "what the store of parameters makes of it";
    const auto more = [&](Category category) {
      return memory_of(model, layout, on_gpu, 1024)[0][category] - memory_of(model, layout, on_host, 1024)[0][category];
    };
    const auto elements = static_cast<std::size_t>(rows) * 768;
    EXPECT_EQ(more(Category::weights), 2 * elements);
    EXPECT_EQ(more(Category::gradients), 4 * elements);
    EXPECT_EQ(more(Category::optimizer), 12 * elements);
    const Index logits = logit_rows(4096, model.vocab_size, layout.tensor, logits_on_host.max_at_once) * rows;
    EXPECT_NEAR(static_cast<double>(more(Category::workspace)), 2 * static_cast<double>(logits), 256);
  }
  EXPECT_EQ(block_shape(model_preset("llama3-8b"), layout_of("tensor=8", 8), 1024, on_gpu.logits).logit_columns,
            128256 / 8 + 32);
}

// cuDNN's attention has a workspace, in 16 bits and on GPUs.
TEST(MemoryOfStages, attention_through_cudnn_has_a_workspace) {
  const ModelConfig model = model_preset("gpt2-124m");
  const Implementation on_gpu = espalier_implementation(false);
  Implementation own = on_gpu;
  own.cudnn_attention = false;
  const auto held = [&](const char* text, const Implementation& implementation) {
    return attention_workspace_on_rank(problem_for(model, implementation, 1024), layout_of(text, 16));
  };
  EXPECT_EQ(held("micro_batch=4", on_gpu), cudnn_workspace_bound({4, 1024, 12, 64, 12}));
  EXPECT_EQ(held("micro_batch=4,tensor=2,precision=fp16", on_gpu), cudnn_workspace_bound({4, 1024, 6, 64, 6}));
  EXPECT_EQ(held("micro_batch=4,precision=fp32", on_gpu), 0u);
  EXPECT_EQ(held("micro_batch=4", own), 0u);
  EXPECT_EQ(held("micro_batch=4", espalier_implementation(true)), 0u);
  ModelConfig dropping = model;
  dropping.attention_dropout = 0.1;
  EXPECT_EQ(attention_workspace_on_rank(problem_for(dropping, on_gpu, 1024), layout_of("micro_batch=4", 16)), 0u)
      << "not by cuDNN";
  const ModelConfig grouped = model_preset("llama3-8b");  // tensor ranks beyond its 8 heads of keys hold one each
  EXPECT_EQ(attention_workspace_on_rank(problem_for(grouped, on_gpu, 4096), layout_of("micro_batch=1,tensor=2", 16)),
            cudnn_workspace_bound({1, 4096, 16, 128, 4}));
  EXPECT_EQ(attention_workspace_on_rank(problem_for(grouped, on_gpu, 4096), layout_of("micro_batch=1,tensor=16", 16)),
            cudnn_workspace_bound({1, 4096, 2, 128, 1}));
  const Layout stages = layout_of("pipeline=2,micro_batch=4", 16);
  const auto with = memory_of(model, stages, on_gpu, 1024);
  const auto without = memory_of(model, stages, own, 1024);
  for (std::size_t stage = 0; stage < 2; ++stage)
    EXPECT_EQ(with[stage][Category::workspace] - without[stage][Category::workspace],
              cudnn_workspace_bound({4, 1024, 12, 64, 12}));
}

// Stages of a plan against what `train --dry-run` says of the config of that plan: byte for byte.
void expect_memory_of_train(const std::string& model, const std::string& text, Index global_batch,
                            Index sequence_length = 0) {
  SCOPED_TRACE(model + " " + text);
  // "...,shard_over=node": of four replicas on a node.
  Cluster cluster = cluster_preset("a100-80");
  cluster.devices_per_node = 4 * layout_of(text.c_str(), global_batch).tensor;
  cluster.device.moves_messages = exec_is_host;
  const Layout layout = with_shards(layout_of(text.c_str(), global_batch), cluster);
  ModelConfig shape = model_preset(model);
  if (sequence_length > 0)
    shape.max_sequence_length = sequence_length;
  RunConfig config = config_of_layout(shape, layout);
  config.ranks_per_node = cluster.devices_per_node;
  if (!exec_is_host)  // NCCL sums among all at once
    config.max_summed_at_once = layout.num_devices();
  const auto wanted = predict_memory(config, make_run_layout(config, layout.num_devices()));
  Implementation implementation = espalier_implementation(exec_is_host);
  implementation.cudnn_attention = false;  // what it wants only cuDNN knows, where there is a GPU
  const auto planned = memory_of(shape, layout, implementation, shape.max_sequence_length);
  ASSERT_EQ(planned.size(), wanted.size());
  for (std::size_t stage = 0; stage < wanted.size(); ++stage)
    for (std::size_t category = 0; category < num_categories; ++category)
      EXPECT_EQ(planned[stage].bytes[category], wanted[stage].bytes[category])
          << "stage " << stage << ", " << to_string(static_cast<Category>(category));
}

TEST(MemoryOfStages, are_those_of_train_on_eight_ranks) {
  for (const char* const zero : {"zero=0", "zero=1", "zero=2", "zero=3"})
    for (const char* const layout :
         {"data=8", "data=4,tensor=2", "data=4,tensor=2,sequence_parallel=1", "data=4,pipeline=2",
          "data=2,tensor=2,pipeline=2,recompute=selective", "data=2,tensor=4,sequence_parallel=1,recompute=full",
          "data=2,pipeline=4,schedule=zero_bubble", "data=2,pipeline=4,virtual_stages=3,recompute=selective",
          "data=8,shard_over=node"})
      expect_memory_of_train("gpt2-124m", fmt::format("{},{},micro_batch=2", layout, zero), 32);
  for (const char* const layout : {"tensor=8", "tensor=4,pipeline=2,sequence_parallel=1", "pipeline=4,tensor=2"})
    expect_memory_of_train("gpt2-355m", layout, 32);
}

// Sums in two levels, on hosts.
TEST(MemoryOfStages, are_those_of_train_on_many_ranks) {
  for (const char* const zero : {"zero=0", "zero=1", "zero=2", "zero=3"})
    for (const char* const layout : {"data=128", "data=96,tensor=2", "data=80,pipeline=2", "data=128,shard_over=node"})
      expect_memory_of_train("gpt2-124m", fmt::format("{},{},micro_batch=1", layout, zero), 3840);
}

TEST(MemoryOfStages, agrees_for_every_family) {
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
TEST(MemoryOfStages, agrees_on_every_schedule) {
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

// 8 heads of keys and values: with 8 tensor ranks each has one, with 16 two have copies of the same.
TEST(MemoryOfStages, tensor_ranks_beyond_the_kv_heads_have_copies) {
  const ModelConfig model = model_preset("llama3-70b");
  EXPECT_EQ(block_shape(model, {.tensor = 4}, 1024).kv_channels, 2 * 128);
  EXPECT_EQ(block_shape(model, {.tensor = 8}, 1024).kv_channels, 128);
  EXPECT_EQ(block_shape(model, {.tensor = 16}, 1024).kv_channels, 128);
  const double norms = 2.0 * 8192;
  const auto weights = [&](int tensor) { return layer_elements(model, {.tensor = tensor}, {}).block - norms; };
  EXPECT_DOUBLE_EQ(8 * weights(8), weights(1));
  EXPECT_DOUBLE_EQ(16 * weights(16) - weights(1), 8 * 2 * 128.0 * 8192);  // eight more heads of both
}

// SwiGLU has gradients of gate and up where gelu has one, for all rows. What a later weight part reads beside them, the
// input of the way down, is as wide as without a gate.
TEST(MemoryOfStages, a_gate_has_a_gradient_of_its_own) {
  ModelConfig model = model_preset("llama3-8b");
  ASSERT_TRUE(model.gated());
  const auto workspace = [&](bool gated, Layout layout) {
    model.activation = gated ? "swiglu" : "gelu";
    layout.layers = {8, 8, 8, 8};
    return static_cast<double>(memory_of(model, layout, espalier_implementation(), 2048)[1][Category::workspace]);
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

TEST(MemoryOfStages, the_peak_stage_has_the_peak) {
  const auto memory = memory_of("gpt-22b", layout_of("pipeline=4", 16), espalier_implementation(), 2048);
  const std::size_t highest = memory[static_cast<std::size_t>(peak_stage(memory))].total();
  EXPECT_EQ(peak_bytes(memory), highest);
  for (const MemoryByCategory& stage : memory)
    EXPECT_LE(stage.total(), highest);
}

// More bytes than a counter holds: they must not come out as few.
TEST(MemoryOfStages, what_no_device_could_hold_stays_much) {
  ModelConfig model = model_preset("gpt-1t");
  model.num_layers = 1 << 14;
  model.hidden_size = 1 << 18;
  model.ffn_hidden_size = 1 << 20;
  const Layout layout{.micro_batch = 1 << 24, .global_batch = 1 << 24};
  const std::size_t bytes = peak_bytes(memory_of(model, layout, espalier_implementation(), 1 << 24));
  EXPECT_GT(bytes, std::size_t{1} << 57);
  EXPECT_LT(bytes, std::size_t{1} << 62);
}

}  // namespace
