// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "models/presets.hpp"
#include "planning/collective_time.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/layer_time.hpp"
#include "tests/published/published_program.hpp"

using namespace espalier;

namespace {

Accelerator simple_device() {
  Accelerator device;
  device.memory_bandwidth = 1e12;
  device.memory_efficiency = 0.5;
  device.processors = 100;
  device.rate(Precision::bf16) = MatrixRate{.peak_flops = 100e12,
                                            .matmul_efficiency = 0.8,
                                            .half_depth = 100,
                                            .fill_waves = 0.5,
                                            .attention_efficiency = 0.4};
  return device;
}

// 2 m n k operations at the share that the curve gives: k / (k + half_depth), and tiles / (tiles + fill_waves x
// processors).
TEST(LayerTime, a_product_follows_the_efficiency_curve) {
  const Accelerator device = simple_device();
  const double tiles = (4096.0 / 128) * (4096.0 / 128);
  const double share = 0.8 * (900.0 / 1000) * (tiles / (tiles + 50));
  EXPECT_NEAR(product_seconds(device, Precision::bf16, 4096, 4096, 900) / (2.0 * 4096 * 4096 * 900 / (100e12 * share)),
              1, 1e-12);
}

TEST(LayerTime, a_thin_product_is_bound_by_memory) {
  const double bytes = 2 * (1 * 8192.0 + 8192.0 * 8192 + 8192);
  EXPECT_NEAR(product_seconds(simple_device(), Precision::bf16, 1, 8192, 8192) / (bytes / 0.5e12), 1, 1e-12);
}

TEST(LayerTime, overlap_costs_a_quarter_where_both_are_equal) {
  EXPECT_NEAR(overlapped(1, 1), 1.26, 0.001);
  EXPECT_NEAR(overlapped(1, 0.1), 1, 0.001);
  EXPECT_EQ(overlapped(0, 2), 2);
}

TEST(LayerTime, small_blocks_are_bound_by_the_host) {
  PassTime pass{.products = 1e-3, .elementwise = 0, .tensor = 0, .host = 1e-5};
  EXPECT_NEAR(pass.seconds(), 1e-3, 1e-9);
  pass.host = 1e-2;
  EXPECT_NEAR(pass.seconds(), 1e-2, 1e-7);
  EXPECT_EQ(PassTime{}.seconds(), 0);
}

struct Published {
  Recompute recompute;
  bool sequence_parallel;
  double forward_ms;
  double backward_ms;
};

// One block of the 22B model, tensor 8, micro-batch 4, A100: Korthikanti et al. 2022, Table 4.
TEST(LayerTime, a_block_takes_the_published_time) {
  Implementation program;
  program.fused_attention = false;
  program.recomputes_attention = true;
  program.overlaps_tensor_backward = true;
  program.recomputes_last_product = true;
  ModelConfig model = model_preset("gpt-22b");
  model.embedding_dropout = model.attention_dropout = model.residual_dropout = 0.1;
  set_arrays({.fused_elementwise = true}, model, program);
  const Cluster cluster = cluster_preset("a100-80");
  for (const Published& row :
       {Published{Recompute::none, false, 7.7, 11.9}, Published{Recompute::none, true, 7.2, 11.8},
        Published{Recompute::full, false, 7.7, 19.5}, Published{Recompute::selective, false, 7.7, 13.2},
        Published{Recompute::selective, true, 7.2, 13.1}}) {
    Layout layout;
    layout.tensor = 8;
    layout.micro_batch = 4;
    layout.precision = Precision::fp16;
    layout.recompute = row.recompute;
    layout.sequence_parallel = row.sequence_parallel;
    const BlockTime time = block_time(model, cluster, layout, program, 2048);
    const double backward = time.backward_input.seconds() + time.backward_weight.seconds() + time.recompute.seconds();
    EXPECT_NEAR(1e3 * time.forward.seconds() / row.forward_ms, 1, 0.12) << to_string(row.recompute);
    EXPECT_NEAR(1e3 * backward / row.backward_ms, 1, 0.12) << to_string(row.recompute);
  }
}

// Full recomputation needs all of forward again but its last collective, which sums the block's output; with the whole
// ring of keys and values. A program that repeats the last product, too, repeats that one as well.
TEST(LayerTime, recomputation_repeats_all_but_the_last_collective) {
  const Cluster cluster = cluster_preset("h100:4");
  for (const bool sequence_parallel : {false, true})
    for (const bool last_product : {false, true})
      for (const int context : {1, 4}) {
        Implementation program;
        program.recomputes_last_product = last_product;
        Layout layout;
        layout.tensor = 4;
        layout.context = context;
        layout.sequence_parallel = sequence_parallel;
        layout.recompute = Recompute::full;
        const ModelConfig model = model_preset("llama3-8b");
        const BlockTime time = block_time(model, cluster, layout, program, 8192);
        const double bytes = 2 * 8192.0 / context * 4096;
        const double last = collective_seconds(
            cluster, sequence_parallel ? Collective::reduce_scatter : Collective::all_reduce, {4, 1}, bytes);
        EXPECT_NEAR((time.forward.tensor - time.recompute.tensor) / last, last_product ? 0 : 1, 1e-9)
            << sequence_parallel << " " << context;
      }
}

// A kernel that was written for the device makes attention faster, and nothing else; both are slower over short
// sequences: s / (s + half length) of the s = T + 1 keys that T causal queries see twice on average.
TEST(LayerTime, tuned_attention_is_that_of_the_device) {
  const ModelConfig model = model_preset("llama3-8b");
  Cluster cluster = cluster_preset("h100");
  MatrixRate& rate = cluster.device.rate(Precision::bf16);
  rate.attention_efficiency = 0.1;
  rate.tuned_attention_efficiency = 0.4;
  rate.attention_half_length = 1000;
  Implementation program;
  const auto products = [&](bool tuned) {
    program.tuned_attention = tuned;
    return block_time(model, cluster, Layout{}, program, 8192).forward.products;
  };
  const double flops = 2.0 * 8192 * (8192 + 128) * 4096 * (8193 + 1000) / 8193;
  EXPECT_NEAR(products(false) - products(true), flops / (989e12 * 0.1) - flops / (989e12 * 0.4), 1e-9);
  rate.tuned_attention_efficiency = 0;  // not known: no better
  EXPECT_EQ(products(true), products(false));
}

// The kernels of a pass are those that the layers list, and what the program moves more.
TEST(LayerTime, elementwise_kernels_are_those_that_the_layers_list) {
  const ModelConfig model = model_preset("llama3-8b");
  const Cluster cluster = cluster_preset("h100");
  for (const bool sequence_parallel : {false, true}) {
    Layout layout;
    layout.tensor = 2;
    layout.sequence_parallel = sequence_parallel;
    layout.recompute = Recompute::full;
    const LayerWork listed = block_work(block_shape(model, layout, 8192), ScalarType::bf16);
    const double rate = 3.35e12 * 0.88;
    Implementation program;
    const BlockTime plain = block_time(model, cluster, layout, program, 8192);
    EXPECT_DOUBLE_EQ(plain.forward.elementwise, listed.forward.elementwise_bytes / rate);
    EXPECT_DOUBLE_EQ(plain.recompute.elementwise, listed.recompute.elementwise_bytes / rate);
    EXPECT_DOUBLE_EQ(plain.backward_input.elementwise, listed.backward_input.elementwise_bytes / rate);
    EXPECT_DOUBLE_EQ(plain.backward_weight.elementwise, listed.backward_weight.elementwise_bytes / rate);
    program.more_forward = MoreArrays{.stream = 1, .qkv = 2, .qk = 3, .ffn = 4};
    program.more_backward = MoreArrays{.stream = -1};
    const BlockTime more = block_time(model, cluster, layout, program, 8192);
    const double stream = 2 * 8192.0 * 4096 / (sequence_parallel ? 2 : 1);
    const double forward = stream + 2 * 8192.0 * (2 * 3072 + 3 * 2560 + 4 * 7168);
    EXPECT_NEAR((more.forward.elementwise - plain.forward.elementwise) / (forward / rate), 1, 1e-9);
    EXPECT_NEAR((more.recompute.elementwise - plain.recompute.elementwise) / (forward / rate), 1, 1e-9);
    EXPECT_NEAR((plain.backward_input.elementwise - more.backward_input.elementwise) / (stream / rate), 1, 1e-9);
    EXPECT_EQ(more.backward_weight.elementwise, plain.backward_weight.elementwise);
    const BlockTime head = head_time(model, cluster, layout, program, 8192);
    program.more_forward.logits = 1;
    EXPECT_NEAR(head_time(model, cluster, layout, program, 8192).forward.elementwise - head.forward.elementwise,
                2 * 8192.0 * 128256 / 2 / rate, 1e-9);
    EXPECT_DOUBLE_EQ(
        head.forward.elementwise,
        head_work(model, block_shape(model, layout, 8192), ScalarType::bf16).forward.elementwise_bytes / rate);
  }
}

// RMSNorm twice 32 bytes an element of the stream, rotary positions 16 of queries and keys, a gate 4: twice in
// backward.
TEST(LayerTime, operators_that_are_kernels_move_more) {
  const ModelConfig model = model_preset("llama3-8b");
  const Cluster cluster = cluster_preset("h100");
  for (const bool sequence_parallel : {false, true}) {
    Layout layout;
    layout.tensor = 2;
    layout.sequence_parallel = sequence_parallel;
    Implementation program;
    set_arrays({.fused_elementwise = true}, model, program);
    const BlockTime fused = block_time(model, cluster, layout, program, 8192);
    set_arrays({}, model, program);
    const BlockTime apart = block_time(model, cluster, layout, program, 8192);
    const double stream = 4096 / (sequence_parallel ? 2.0 : 1.0);
    const double bytes = 8192.0 * (64 * stream + 16 * (4096 / 2 + 1024 / 2) + 4 * 14336 / 2);
    const double seconds = bytes / (3.35e12 * 0.88);
    EXPECT_NEAR((apart.forward.elementwise - fused.forward.elementwise) / seconds, 1, 1e-9);
    EXPECT_NEAR((apart.backward_input.elementwise - fused.backward_input.elementwise) / seconds, 2, 1e-9);
  }
}

// A window leaves a query W keys, and fewer at the start; a kernel over k of them reaches the share k / (k + 1000).
TEST(LayerTime, attention_in_a_window_is_that_of_the_keys_seen) {
  const auto seconds = [](Index window, Index full_layers) {
    ModelConfig model = model_preset("llama3-8b");
    model.window = window;
    model.full_layers = full_layers;
    return block_time(model, cluster_preset("h100"), Layout{}, Implementation{}, 8192).forward.products;
  };
  const double full = seconds(0, 0);
  EXPECT_EQ(seconds(8192, 0), full) << "a window as long as the sequence is none";
  const auto work = [](double keys) { return (keys + 127) * (keys + 1000) / keys; };
  const auto saved = [&](double window) { return work(8193) - work(2 * window * (8192 - (window - 1) / 2) / 8192); };
  EXPECT_LT(seconds(1024, 0), full);
  EXPECT_NEAR((full - seconds(1024, 0)) / (full - seconds(4096, 0)), saved(1024) / saved(4096), 1e-6);
  EXPECT_NEAR(seconds(1024, 16), (full + seconds(1024, 0)) / 2, 1e-9 * full) << "half of 32 layers has no window";
}

// Exponentials are as many in narrow heads, and Blackwell's matmuls of 64 channels wait for them; Ampere's do not.
TEST(LayerTime, narrow_heads_wait_for_exponentials) {
  const auto attention = [](const Cluster& cluster, Index head_dim) {
    ModelConfig model = model_preset("llama3-8b");
    model.head_dim = head_dim;
    const auto products = [&] { return block_time(model, cluster, Layout{}, Implementation{}, 8192).forward.products; };
    const double full = products();
    model.window = 1024;
    return full - products();
  };
  Cluster cluster = cluster_preset("b200");
  EXPECT_NEAR(attention(cluster, 64) / attention(cluster, 128), 1, 1e-9);
  cluster.device.processors = 1;  // as in a cluster file that does not say how many there are
  EXPECT_NEAR(attention(cluster, 64) / attention(cluster, 128), 0.5, 1e-9);
  cluster = cluster_preset("a100-80");
  EXPECT_NEAR(attention(cluster, 64) / attention(cluster, 128), 0.5, 1e-9);
}

// 8192 rows of Llama 3 8B: the products of forward read 3 x 4096 + 14336 columns, and 218M weights.
TEST(LayerTime, fp8_is_cast_and_scaled) {
  const ModelConfig model = model_preset("llama3-8b");
  const Cluster cluster = cluster_preset("h100");
  Layout layout;
  layout.precision = Precision::fp8;
  Implementation program;
  const auto forward = [&] { return block_time(model, cluster, layout, program, 8192).forward; };
  const PassTime plain = forward();
  const double rate = 3.35e12 * 0.88;
  program.cast_bytes = 6;
  EXPECT_NEAR(forward().elementwise - plain.elementwise, 2 * 8192.0 * (3 * 4096 + 14336) / rate, 1e-9);
  const double cast = forward().elementwise;
  program.casts_weights = true;
  EXPECT_NEAR(forward().elementwise - cast, 3 * (4096.0 * (2 * 4096 + 2 * 1024) + 3 * 4096.0 * 14336) / rate, 1e-9);
  program.fp8_matmul_efficiency = 0.5;
  EXPECT_GT(forward().products, 1.5 * plain.products);
  EXPECT_LT(forward().products, 2 * plain.products) << "attention is in bf16";
  program = {};
  program.graphed = true;
  EXPECT_EQ(forward().host, 0);
}

// Two adds of 3 bf16 reads and writes become one write each, and heads of 4096 + 2 x 1024 columns are not moved.
TEST(LayerTime, residual_is_added_by_the_norm) {
  const ModelConfig model = model_preset("llama3-8b");
  const Cluster cluster = cluster_preset("h100");
  const auto elementwise = [&](bool fused) {
    Implementation program;
    set_arrays({.fused_residual = fused, .fused_elementwise = true}, model, program);
    return block_time(model, cluster, {}, program, 8192).forward.elementwise;
  };
  EXPECT_NEAR(elementwise(false) - elementwise(true), 2 * 8192.0 * (2 * 4096 + 2 * (4096 + 2048)) / (3.35e12 * 0.88),
              1e-9);
}

// What each choice does to a block, whatever the curve.
TEST(LayerTime, choices_move_time_the_way_they_must) {
  const ModelConfig model = model_preset("llama3-8b");
  const Cluster cluster = cluster_preset("h100:4");
  const Implementation program;
  const auto seconds = [&](auto edit) {
    Layout layout;
    edit(layout);
    return block_time(model, cluster, layout, program, 8192).seconds();
  };
  const double plain = seconds([](Layout&) {});
  EXPECT_GT(seconds([](Layout& layout) { layout.recompute = Recompute::full; }), 1.15 * plain);
  EXPECT_LT(seconds([](Layout& layout) { layout.recompute = Recompute::full; }), 1.40 * plain);
  EXPECT_LT(seconds([](Layout& layout) { layout.precision = Precision::fp8; }), plain);
  const double tensor2 = seconds([](Layout& layout) { layout.tensor = 2; });
  EXPECT_GT(tensor2, plain / 2);
  EXPECT_LT(tensor2, plain);
  const double near = seconds([](Layout& layout) { layout.tensor = 8; });
  EXPECT_GT(seconds([](Layout& layout) { layout.tensor = 32; }), 2 * near / 4);  // over four nodes
  EXPECT_LT(seconds([](Layout& layout) { layout.context = 2; }), plain);
  EXPECT_NEAR(seconds([](Layout& layout) { layout.micro_batch = 4; }) / (4 * plain), 1, 0.1);
}

}  // namespace
