// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/predict_memory.hpp"

#include <algorithm>

#include "core/ops/attention_library.hpp"
#include "core/ops/matmul_library.hpp"
#include "models/decoder.hpp"
#include "models/tensor_scratch.hpp"
#include "parallel/reduction_plan.hpp"
#include "training/config_warnings.hpp"
#include "training/counted_ranges.hpp"
#include "training/forward_backward.hpp"
#include "training/gemm_rate.hpp"
#include "training/with_compute_type.hpp"

namespace espalier {
namespace {

// What a save behind the training keeps on a rank: the weights (or masters) and moments that it writes.
template <class T>
std::uint64_t checkpoint_copy(const RunConfig& config, const Layout& layout, int rank,
                              const ParameterStore<T>& parameters) {
  if (!config.checkpoint.async)
    return 0;
  const bool is_shared = layout.zero_stage > 0;
  const std::vector<IndexRange> all = {{0, parameters.flat_size()}};
  const auto owned = [&] {
    return plan_reduction(parameters.segments(), parameters.parameters(), layout.mesh().group_ranks(rank),
                          reducer_options(config, layout, layout.mesh().coordinates(rank)[Axis::pp]), sizeof(State<T>))
        .owned;
  };
  const auto counted = [&](const std::vector<IndexRange>& ranges, bool by_slice) {
    return total_size(counted_ranges(parameters.parameters(), ranges, layout.mesh(), rank, by_slice));
  };
  const Index moments = counted(is_shared ? owned() : all, is_shared);
  const Index weights = has_masters<T> || layout.zero_stage == 3 ? moments : counted(all, false);
  return static_cast<std::uint64_t>(weights + 2 * moments) * sizeof(State<T>);
}

// Of an array that is kept so.
template <class V, class T>
std::uint64_t storage_bytes(const FlatSharding& sharding, const ParameterStore<T>& parameters) {
  const Index elements = total_size(sharding.held(parameters.flat_size())) + sharding.buffers * sharding.buffer_size();
  return static_cast<std::uint64_t>(elements) * sizeof(V);
}

// Arrays, buffers and copies of the replica that has most of them: slices end where rows do, so replicas differ.
template <class T>
void set_largest_share(MemoryByCategory& memory, const RunConfig& config, const Layout& layout, PerAxis place,
                       const ParameterStore<T>& parameters) {
  const ReducerOptions options = reducer_options(config, layout, place[Axis::pp]);
  const UnitBuffers buffers = unit_buffers(layout, place[Axis::pp]);
  const auto ranks_of = [&](int replica) {
    place[Axis::dp] = replica;
    return layout.mesh().group_ranks(layout.mesh().rank_at(place));
  };
  std::uint64_t most = 0;
  for (int replica = 0; replica < layout.data; ++replica) {
    const GroupRanks ranks = ranks_of(replica);
    const ReductionPlan own =
        plan_reduction(parameters.segments(), parameters.parameters(), ranks, options, sizeof(State<T>));
    const auto moments = static_cast<std::uint64_t>(total_size(own.owned));
    const std::uint64_t optimizer = (has_masters<T> ? 3 : 2) * moments * sizeof(State<T>);
    const std::uint64_t communication = reduction_memory(own, ranks, options, sizeof(State<T>));
    // On a GPU the copy lies in the memory of the host.
    const std::uint64_t copy =
        exec_is_host ? checkpoint_copy(config, layout, layout.mesh().rank_at(place), parameters) : 0;
    const auto weights = storage_bytes<T>(own.weights(layout.zero_stage, buffers.weights), parameters);
    const auto gradients = storage_bytes<State<T>>(own.gradients(buffers.gradients), parameters);
    const std::uint64_t all = optimizer + communication + copy + weights + gradients;
    if (all < most)
      continue;
    most = all;
    memory.bytes[static_cast<std::size_t>(Category::weights)] = static_cast<std::size_t>(weights);
    memory.bytes[static_cast<std::size_t>(Category::gradients)] = static_cast<std::size_t>(gradients);
    memory.bytes[static_cast<std::size_t>(Category::other)] = static_cast<std::size_t>(copy);
    memory.bytes[static_cast<std::size_t>(Category::optimizer)] = static_cast<std::size_t>(optimizer);
    memory.bytes[static_cast<std::size_t>(Category::communication)] = static_cast<std::size_t>(communication);
  }
}

// What the libraries of products and attention hold on to; 0 of one that this build lacks.
template <class T>
std::uint64_t library_workspaces(const RunConfig& config, const AttentionShape& attention) {
  const auto absent = absent_libraries(config);
  const auto is_here = [&](const char* key) {
    return std::ranges::none_of(absent, [&](const auto& library) { return library.first == key; });
  };
  return (is_here("matmul") ? matmul_workspace_bytes<T>(wanted_matmul_library<T>(config)) : 0) +
         (is_here("attention") && why_not_cudnn(config).empty()
              ? attention_workspace_bytes<T>(parse_attention_library(config.run.attention), attention)
              : 0);
}

template <class P>
MemoryByCategory memory_of_tensor_rank(const RunConfig& config, const Layout& layout, int stage, int tensor_rank) {
  const std::vector<ChunkLayers> chunks = layout.chunks()[static_cast<std::size_t>(stage)];
  ParameterStore<Compute<P>> parameters;
  const TensorParallel<Compute<P>> tensor(tensor_rank, layout.tensor, layout.sequence_parallel);
  const Decoder<P> model(parameters, config.model.shape, chunks, tensor);
  parameters.lay_out();
  const auto activations = model.measure_activations(
      config.layout.micro_batch, config.sequence_length,
      activation_memory(make_schedule(layout.pipeline_shape(), stage), chunks, config.data.separates_documents()));
  MemoryByCategory memory;
  const auto set = [&](Category category, std::uint64_t bytes) {
    memory.bytes[static_cast<std::size_t>(category)] = static_cast<std::size_t>(bytes);
  };
  set(Category::activations, static_cast<std::uint64_t>(activations.slots));
  set(Category::workspace, static_cast<std::uint64_t>(activations.workspace) +
                               library_workspaces<Compute<P>>(config, attention_shape(config, layout)));
  set_largest_share(memory, config, layout, PerAxis::coordinates(tensor_rank, 0, stage), parameters);
  memory.bytes[static_cast<std::size_t>(Category::communication)] +=
      static_cast<std::size_t>(tensor_scratch<Compute<P>>(config, layout, stage));
  return memory;
}

}  // namespace

AttentionShape attention_shape(const RunConfig& config, const Layout& layout) {
  return make_block_shape(config.model.shape, layout.tensor, false, config.layout.micro_batch, config.sequence_length)
      .attention;
}

template <class T>
Index tensor_scratch(const RunConfig& config, const Layout& layout, int stage) {
  const Index tokens = config.layout.micro_batch * config.sequence_length;
  const Index rows = logit_rows(tokens, config.model.shape.vocab_size, layout.tensor, most_logits);
  return TensorScratch{.size = layout.tensor,
                       .sequence_parallel = layout.sequence_parallel,
                       .tokens = tokens,
                       .logit_rows = layout.has_head(stage) ? rows : 0,
                       .compute_bytes = sizeof(T),
                       .state_bytes = sizeof(State<T>)}
      .bytes(config.model.shape);
}

template <class P>
MemoryByCategory predict_memory(const RunConfig& config, const Layout& layout, int stage) {
  // The first tensor rank has the most rows; under sequence parallelism the others share gradients with it, unevenly.
  MemoryByCategory peak = memory_of_tensor_rank<P>(config, layout, stage, 0);
  for (int rank = 1; layout.sequence_parallel && rank < layout.tensor; ++rank)
    if (const MemoryByCategory memory = memory_of_tensor_rank<P>(config, layout, stage, rank);
        memory.total() > peak.total())
      peak = memory;
  return peak;
}

std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const Layout& layout) {
  std::vector<MemoryByCategory> stages;
  for (int stage = 0; stage < layout.pipeline; ++stage)
    stages.push_back(with_precision(config, [&]<class P>() { return predict_memory<P>(config, layout, stage); }));
  return stages;
}

#define ESPALIER_INSTANTIATE(P) template MemoryByCategory predict_memory<P>(const RunConfig&, const Layout&, int);
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(T) template Index tensor_scratch<T>(const RunConfig&, const Layout&, int);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
