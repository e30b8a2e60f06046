// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/rank_memory.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "models/activation_memory.hpp"
#include "models/cost.hpp"
#include "models/layout_rules.hpp"
#include "models/state_memory.hpp"
#include "parallel/collectives/collective_traffic.hpp"
#include "parallel/schedule/pipeline_slots.hpp"

namespace espalier {
namespace {

constexpr std::size_t beyond_any_device = std::size_t{1} << 58;

std::size_t& bytes_of(MemoryByCategory& memory, Category category) {
  return memory.bytes[static_cast<std::size_t>(category)];
}

// Without sequence parallelism rank 0 needs most. With it the ranks share the gradients of the norms unevenly, and any
// may need most.
std::vector<AlikeRanks> alike_ranks(const ModelConfig& model, const Layout& layout) {
  if (!layout.sequence_parallel)
    return {{}};
  std::vector<AlikeRanks> runs;
  std::array<Index, 3> before{};
  for (int rank = 0; rank < layout.tensor; ++rank) {
    std::array<Index, 3> parts{model.vocab_size, model.num_heads, model.ffn_hidden_size};
    for (Index& extent : parts)
      extent = Shard{0, rank, layout.tensor}.range(extent).size();
    if (runs.empty() || parts != before)
      runs.push_back({rank, rank});
    runs.back().end = rank + 1;
    before = parts;
  }
  return runs;
}

// Ranks that share sequences sum gradients like replicas.
Layout with_context_ranks_as_replicas(const ModelConfig& model, Layout layout) {
  layout.data *= layout.context;
  layout.global_batch *= layout.context;  // as many micro-batches
  layout.shard_replicas *= layout.context;
  layout.context = 1;
  return acting_layout(std::move(layout), model);
}

// Far more than counters hold, by a rough sum.
bool is_beyond_counting(const ModelConfig& model, const Layout& layout, Index tokens) {
  const double channels =
      to_double(model.hidden_size) + to_double(model.ffn_hidden_size) + 4 * to_double(model.q_size());
  const double layers = to_double(model.num_layers) + 4;
  const double slots = to_double(pipeline_slots(layout.pipeline_shape(), 0).together) / layout.pipeline + 1;
  const double activations = 16 * to_double(tokens) * channels * layers * slots;
  const double weights = 16 * to_double(model.hidden_size) * (channels * layers + to_double(model.vocab_size));
  return std::max(activations, weights) > static_cast<double>(beyond_any_device);
}

}  // namespace

TrainingTypes types_of_precision(Precision precision) {
  switch (precision) {
    case Precision::fp64: return {ScalarType::fp64, ScalarType::fp64};
    case Precision::fp16: return {ScalarType::fp16, ScalarType::fp16};
    case Precision::bf16:
    case Precision::fp8: return {ScalarType::bf16, ScalarType::bf16};
    case Precision::fp32:
    case Precision::tf32: break;
  }
  return {};
}

StateBytes state_bytes(const TrainingTypes& types) {
  const auto state = static_cast<Index>(size_of(types.state()));
  return {.weights = static_cast<Index>(size_of(types.compute)),
          .gradients = state,
          .optimizer = (types.has_master_weights() ? 3 : 2) * state};
}

double all_state_bytes(const ModelConfig& model, Precision precision) {
  return static_cast<double>(num_parameters(model)) *
         static_cast<double>(state_bytes(types_of_precision(precision)).total());
}

ReducerOptions reducer_options(const Layout& layout, const std::vector<ChunkLayers>& chunks,
                               std::optional<ScalarType> wire, double message_scale) {
  ReducerOptions options =
      options_for_ranks({.zero_stage = layout.zero_stage, .wire = wire}, layout.mesh().replicas_of_shard_group());
  options.layers_of_chunk = layers_of_chunk(chunks);
  for (Index* const bytes : {&options.smallest_bucket_bytes, &options.bucket_bytes})
    if (message_scale > 1)
      *bytes = std::max<Index>(1, static_cast<Index>(static_cast<double>(*bytes) / message_scale));
  return options;
}

std::vector<Index> layers_of_chunk(const std::vector<ChunkLayers>& chunks) {
  std::vector<Index> layers;
  for (const ChunkLayers& chunk : chunks)
    layers.push_back(chunk.count);
  return layers;
}

UnitBuffers unit_buffers(const Layout& layout, const std::vector<ChunkLayers>& chunks) {
  const std::vector<Index> layers = layers_of_chunk(chunks);
  const auto all = static_cast<int>(std::accumulate(layers.begin(), layers.end(), Index{0}));
  return {.weights = layout.zero_stage < 3  ? 0
                     : layout.keep_gathered ? all
                                            : 2,
          .gradients = layout.zero_stage < 2 ? 0 : 2};
}

Index tensor_scratch_bytes(const ModelConfig& model, const Layout& layout, bool has_head,
                           const MemoryOptions& options) {
  const int size = layout.tensor;
  if (size == 1)
    return 0;
  const Index tokens = layout.micro_batch * options.sequence_length;
  const Index stream = tokens * model.hidden_size;
  const auto compute_bytes = static_cast<Index>(size_of(options.types.compute));
  Index most = layout.sequence_parallel ? reduce_scatter_scratch(stream / size, compute_bytes, size)
                                        : all_reduce_scratch(stream, compute_bytes, size);
  if (!has_head)
    return most;
  // Of the loss there are one or two numbers for each row that the head processes at a time.
  const auto state_bytes = static_cast<Index>(size_of(options.types.state()));
  const Index whole = logit_rows(tokens, model.vocab_size, size, options.logits.max_at_once);
  for (const Index rows : {whole, tokens % whole})  // of the last part of them, too
    for (const Index count : {rows, 2 * rows})
      most = std::max(most, all_reduce_scratch(count, state_bytes, size));
  return most;
}

std::vector<MemoryByCategory> rank_memory(const ModelConfig& model, const Layout& asked, const MemoryOptions& wanted) {
  const Layout layout = with_context_ranks_as_replicas(model, asked);
  MemoryOptions options = wanted;
  options.sequence_length = std::max<Index>(1, wanted.sequence_length / asked.context);
  std::vector<MemoryByCategory> memory(static_cast<std::size_t>(layout.pipeline));
  if (is_beyond_counting(model, layout, layout.micro_batch * options.sequence_length)) {
    for (MemoryByCategory& stage : memory)
      bytes_of(stage, Category::activations) = beyond_any_device;
    return memory;
  }
  StateMemory& known = StateMemory::of(model);
  const std::vector<std::vector<ChunkLayers>> stages = layout.chunks();
  for (const AlikeRanks ranks : alike_ranks(model, layout)) {
    const BlockShape shape = make_block_shape(model, layout.tensor, layout.sequence_parallel, layout.micro_batch,
                                              options.sequence_length, ranks.first, options.logits);
    const ActivationRecording recording = record_activations(shape, options.types.compute, options.types.residual);
    MemoryByCategory states;
    for (int stage = 0; stage < layout.pipeline; ++stage) {
      const std::vector<ChunkLayers>& chunks = stages[static_cast<std::size_t>(stage)];
      const auto same = [](const ChunkLayers& a, const ChunkLayers& b) {
        return a.count == b.count && a.embedding == b.embedding && a.head == b.head;
      };
      const bool is_as_before = stage > 1 && stage + 1 < layout.pipeline &&
                                std::ranges::equal(chunks, stages[static_cast<std::size_t>(stage) - 1], same);
      if (!is_as_before)
        states = known.most(layout, options, stage, chunks, ranks);
      const bool has_head = std::ranges::any_of(chunks, &ChunkLayers::head);
      const ActivationBytes activations = activation_bytes(
          recording, chunks, activation_memory(layout.pipeline_shape(), stage, chunks, options.separate_documents));
      MemoryByCategory here = states;
      bytes_of(here, Category::activations) = static_cast<std::size_t>(activations.slots);
      bytes_of(here, Category::workspace) =
          static_cast<std::size_t>(activations.workspace) + static_cast<std::size_t>(options.library_bytes);
      bytes_of(here, Category::communication) +=
          static_cast<std::size_t>(tensor_scratch_bytes(model, layout, has_head, options));
      MemoryByCategory& most = memory[static_cast<std::size_t>(stage)];
      if (here.total() > most.total())
        most = here;
    }
  }
  return memory;
}

int peak_stage(const std::vector<MemoryByCategory>& stages) {
  const auto highest = std::ranges::max_element(stages, {}, &MemoryByCategory::total);
  return static_cast<int>(highest - stages.begin());
}

std::size_t peak_bytes(const std::vector<MemoryByCategory>& stages) {
  return stages[static_cast<std::size_t>(peak_stage(stages))].total();
}

}  // namespace espalier
