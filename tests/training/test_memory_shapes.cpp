// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Models too large to run: what the code that allocates would allocate, against the prediction.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/optim/adamw.hpp"
#include "models/decoder.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "tests/training/shape_config.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/step/forward_backward.hpp"

namespace espalier::test {
namespace {

constexpr double gigabyte = 1e9;

// gpt3-175b: 96 layers of 12288 channels.
RunConfig config_of(int ranks, std::vector<std::string> more) {
  more.insert(more.begin(), "batch.global_batch_size=64");
  return shape_config({.vocab_size = 50257,
                       .max_sequence_length = 2048,
                       .num_layers = 96,
                       .hidden_size = 12288,
                       .num_heads = 96,
                       .ffn_hidden_size = 49152},
                      ranks, more);
}

template <class P>
MemoryByCategory allocated(const RunConfig& config, const Layout& layout, int stage) {
  MemoryLedger& ledger = MemoryLedger::instance();
  const ShapesOnly shapes;
  const MemoryByCategory before = ledger.current();
  const std::vector<ChunkLayers> chunks = layout.chunks().at(static_cast<std::size_t>(stage));
  ParameterStore<Compute<P>> parameters;
  Decoder<P> model(parameters, config.model.shape, chunks,
                   TensorParallel<Compute<P>>(0, layout.tensor, layout.sequence_parallel));
  parameters.lay_out();
  const GroupRanks ranks = layout.mesh().group_ranks(layout.mesh().rank_at(PerAxis::coordinates(0, 0, stage)));
  const ReductionPlan plan = plan_reduction(parameters.segments(), parameters.parameters(), ranks,
                                            reducer_options(config, layout, stage), sizeof(State<Compute<P>>));
  const UnitBuffers buffers = unit_buffers(layout, stage);
  parameters.allocate(plan.weight_sharding(layout.zero_stage, buffers.weights),
                      plan.gradient_sharding(buffers.gradients));
  const AdamW<Compute<P>> optimizer =
      layout.zero_stage > 0 ? AdamW<Compute<P>>(parameters, {}, plan.owned) : AdamW<Compute<P>>(parameters, {});
  model.plan_activations(
      config.layout.micro_batch, config.sequence_length,
      activation_memory(make_schedule(layout.pipeline_shape(), stage), chunks, config.data.separates_documents()));
  MemoryByCategory memory = ledger.current();
  for (std::size_t i = 0; i < num_categories; ++i)
    memory.bytes[i] -= before.bytes[i];
  return memory;
}

template <class P>
void expect_predicted(int ranks, std::vector<std::string> keys, const std::string& type) {
  keys.push_back("precision.compute=" + type);
  const RunConfig config = config_of(ranks, keys);
  const Layout layout = make_run_layout(config, ranks);
  for (const int stage : {0, layout.pipeline / 2, layout.pipeline - 1}) {
    SCOPED_TRACE(fmt::format("{} in {}, stage {}", layout.text(), type, stage));
    const MemoryByCategory measured = allocated<P>(config, layout, stage);
    const MemoryByCategory predicted =
        predict_memory(config, layout, types_of<P>()).at(static_cast<std::size_t>(stage));
    for (const Category category :
         {Category::weights, Category::gradients, Category::optimizer, Category::activations, Category::workspace}) {
      const auto got = static_cast<double>(predicted[category]);
      // What cuBLASLt and cuDNN hold is in the prediction alone.
      const double libraries = !exec_is_host && category == Category::workspace ? 0.2 * gigabyte : 0;
      EXPECT_NEAR(got, static_cast<double>(measured[category]), 0.01 * got + 0.05 * gigabyte + libraries)
          << to_string(category);
    }
    EXPECT_NEAR(static_cast<double>(predicted.total() - predicted[Category::communication]),
                static_cast<double>(measured.total()),
                0.01 * static_cast<double>(measured.total()) + (exec_is_host ? 0 : 0.2 * gigabyte));
    EXPECT_GT(measured.total(), std::size_t{1} << 30);
  }
}

TEST(MemoryShapes, OfModelsThatDoNotFit) {
  const std::string tensor = "parallel.tensor=8", pipeline = "parallel.pipeline=16",
                    sp = "parallel.sequence_parallel=true";
  for (const char* const recompute : {"none", "selective", "full"}) {
    const std::string mode = std::string("parallel.recompute=") + recompute;
    expect_predicted<Fp32>(256, {tensor, pipeline, sp, mode, "parallel.zero_stage=1"}, "fp32");
    expect_predicted<Bf16>(256, {tensor, pipeline, sp, mode, "parallel.zero_stage=1"}, "bf16");
    expect_predicted<Bf16WithFp32Residual>(256, {tensor, pipeline, mode, "precision.residual=state"}, "bf16");
    expect_predicted<Fp16>(64, {tensor, "parallel.pipeline=8", sp, mode, "parallel.schedule=zero_bubble"}, "fp16");
    expect_predicted<Fp32>(96,
                           {tensor, "parallel.pipeline=12", mode, "parallel.schedule=interleaved",
                            "parallel.virtual_stages=4", "batch.global_batch_size=48"},
                           "fp32");
  }
}

// What libraries of attention are asked for: shared heads, and heads that are not hidden_size / num_heads.
TEST(MemoryShapes, AttentionHasTheHeadsOfARank) {
  const RunConfig config =
      parse_run_config("", "test",
                       {"model.preset=qwen3-0.6b", "parallel.tensor=4", "data.train=[\"none.bin\"]", "run.steps=1",
                        "batch.sequence_length=64", "batch.global_batch_size=8", "batch.micro_batch_size=2"},
                       4);
  const AttentionShape shape = attention_shape(config, make_run_layout(config, 4));
  EXPECT_EQ(shape.batch, 2);
  EXPECT_EQ(shape.sequence_length, 64);
  EXPECT_EQ(shape.num_heads, 4);
  EXPECT_EQ(shape.num_kv_heads, 2);
  EXPECT_EQ(shape.head_size, 128) << "of 1024 channels and 16 heads";
}

// One rank, all of it: 18 bytes a parameter in bf16 and the activations of one micro-batch.
TEST(MemoryShapes, OfOneRank) {
  const RunConfig config = config_of(1, {"precision.compute=bf16", "batch.global_batch_size=1"});
  const Layout layout = make_run_layout(config, 1);
  const MemoryByCategory before = MemoryLedger::instance().current();
  const MemoryByCategory measured = allocated<Bf16>(config, layout, 0);
  EXPECT_NEAR(
      static_cast<double>(measured[Category::weights] + measured[Category::gradients] + measured[Category::optimizer]),
      18 * 175e9, 0.01 * 18 * 175e9);
  EXPECT_EQ(MemoryLedger::instance().current().total(), before.total()) << "the ledger is as before";
}

}  // namespace
}  // namespace espalier::test
