// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The lists of the layers say what a step really multiplies and sends over the tensor axis.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "models/cost.hpp"
#include "tests/training/families.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/verify/layouts_to_verify.hpp"

namespace espalier::test {
namespace {

// How often each matmul, attention and collective occurs.
using Counts = std::map<std::tuple<std::string, Index, Index, Index>, Index>;

Counts counts_of(const Work& work) {
  Counts counts;
  for (const MatmulWork& one : work.matmuls)
    counts[{"matmul", one.m, one.n, one.k}] += one.count;
  for (const AttentionWork& one : work.attention)
    counts[{fmt::format("attention {}, {} heads of keys, window {}", one.backward ? "backward" : "forward",
                        one.shape.num_kv_heads, one.shape.window),
            one.shape.batch * one.shape.sequence_length, one.shape.num_heads, one.shape.head_size}] += one.count;
  for (const CollectiveWork& one : work.collectives)
    counts[{fmt::format("collective {}", static_cast<int>(one.kind)), one.elements, one.element_bytes, 0}] += one.count;
  return counts;
}

std::string text(const Counts& counts) {
  std::string text;
  for (const auto& [what, count] : counts)
    text += fmt::format("{} ({}, {}, {}) x {}\n", std::get<0>(what), std::get<1>(what), std::get<2>(what),
                        std::get<3>(what), count);
  return text;
}

Work listed(const ModelWork& model, const std::vector<ChunkLayers>& chunks, const PipelineSchedule& schedule) {
  Work work;
  for (const Operation& operation : schedule)
    work += operation_work(model, chunks.at(static_cast<std::size_t>(operation.chunk)), operation.kind);
  return work;
}

template <class P>
void expect_listed_work(const RunConfig& config) {
  TrainerOn<P> on(config, mesh_of(config));
  Work done;
  counted_work = &done;
  on.trainer.step();
  counted_work = nullptr;
  const PerAxis coordinates = on.layout.mesh().coordinates(world().rank());
  const BlockShape shape = make_block_shape(config.model.shape, on.layout.tensor, on.layout.sequence_parallel,
                                            config.layout.micro_batch, config.sequence_length, coordinates[Axis::tp]);
  const Counts wanted =
      counts_of(listed(model_work(config.model.shape, shape, types_of<P>().compute, types_of<P>().residual),
                       on.layout.chunks().at(static_cast<std::size_t>(coordinates[Axis::pp])), on.trainer.schedule()));
  EXPECT_EQ(text(counts_of(done)), text(wanted)) << on.layout.text() << ", rank " << world().rank();
}

RunConfig family_config(const SharedFolder& folder, const std::vector<std::string>& keys) {
  std::vector<std::string> more = {"model.num_layers=8", "batch.micro_batch_size=1", "run.cuda_graphs=false",
                                   exec_is_host ? "model.vocab_size=61" : "model.vocab_size=512"};
  more.insert(more.end(), keys.begin(), keys.end());
  return tiny_config(folder, 1, more);
}

// Tests of eight ranks take minutes: whether their layouts exist is shown without them.
TEST(WorkLists, EveryFamilyHasTheLayoutsOfEightRanks) {
  const SharedFolder folder("work_family_layouts");
  for (const auto& [family, keys] : families()) {
    const RunConfig base = family_config(folder, keys);
    for (const Layout& layout : layouts_to_verify(base, 8))
      EXPECT_NO_THROW(parse_run_config(to_toml(base), family, settings_to_verify(layout), 8)) << layout.short_text();
  }
}

TEST(WorkLists, EveryFamilyDoesWhatTheLayersList) {
  const SharedFolder folder("work_families");
  for (const auto& [family, keys] : families()) {
    SCOPED_TRACE(family);
    const RunConfig base = family_config(folder, keys);
    const std::vector<std::vector<std::string>> all = layouts_without_zero(base, world().size(), {2, 3});
    for (std::size_t i = 0; i<all.size(); i += world().size()> 4 ? 5 : 2)  // eight ranks take turns on two cores
      expect_listed_work<Fp32>(laid_out(base, all[i]));
  }
}

TEST(WorkLists, EveryLayoutDoesWhatTheLayersList) {
  const SharedFolder folder("work");
  const RunConfig base =
      tiny_config(folder, 1,
                  {"model.num_layers=8", "model.num_heads=8", "batch.micro_batch_size=1", "run.cuda_graphs=false",
                   // Parts that GPUs fill up with no rows of zeros, which the lists leave out.
                   exec_is_host ? "model.vocab_size=61" : "model.vocab_size=512"});
  const std::vector<std::vector<std::string>> all = layouts_without_zero(base, world().size(), {2, 3});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const char* const mode = i % 3 == 0 ? "none" : i % 3 == 1 ? "selective" : "full";
    std::vector<std::string> overrides = all[i];
    overrides.push_back(fmt::format("parallel.recompute={}", mode));
    expect_listed_work<Fp32>(laid_out(base, overrides));
    for (const char* const key : {"compute=bf16", "residual=state", "gradient_reduction=compute"})
      overrides.push_back(std::string("precision.") + key);
    if (i % 4 == 0)
      expect_listed_work<Bf16WithFp32Residual>(laid_out(base, overrides));
  }
}

// Rows of the loss in several pieces, whose last one is shorter.
TEST(WorkLists, PiecesOfTheLossAreListed) {
  const SharedFolder folder("work_pieces");
  const Index vocabulary = 90001 * world().size() * (logits_here.max_at_once / logits_on_host.max_at_once);
  expect_listed_work<Fp32>(
      tiny_config(folder, world().size(),
                  {fmt::format("model.vocab_size={}", vocabulary), "model.hidden_size=8", "model.num_heads=8",
                   "model.max_sequence_length=49", "batch.micro_batch_size=4", "batch.global_batch_size=4",
                   fmt::format("parallel.tensor={}", world().size())}));
}

}  // namespace
}  // namespace espalier::test
