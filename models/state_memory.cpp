// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/state_memory.hpp"

#include <algorithm>

#include "parallel/reduction/reduction_shares.hpp"
#include "parallel/reduction/unique_ranges.hpp"

namespace espalier {
namespace {

std::size_t to_bytes(Index elements, Index element_bytes) { return static_cast<std::size_t>(elements * element_bytes); }

// All layers of a stage in one chunk: where the flat arrays have chunks makes no difference.
ChunkLayers together(const std::vector<ChunkLayers>& chunks) {
  ChunkLayers all;
  for (const ChunkLayers& chunk : chunks) {
    all.count += chunk.count;
    all.embedding = all.embedding || chunk.embedding;
    all.head = all.head || chunk.head;
  }
  return all;
}

// A stage as it is planned.
struct StageParameters {
  DeclaredParameters declared;
  Index flat_size = 0;             // of all layers
  Index layers = 0;                // that are declared
  std::vector<Index> layer_times;  // for how many each stands
};

// Layers are alike, and ZeRO-2 and -3 reduce each by itself. Then all layers but the last count as one, times their
// number; the flat arrays may end behind the last.
StageParameters stage_parameters(const ParameterRecording& recording, ChunkLayers all, bool reduces_layers) {
  StageParameters stage;
  const Index layers = all.count;
  if (reduces_layers && layers >= 2) {
    all.count = 2;
    stage.layer_times = {layers - 1, 1};
  }
  stage.layers = all.count;
  stage.declared = recording.of({all});
  stage.flat_size =
      stage.declared.flat_size + (layers - all.count) * round_up(recording.block().flat_size, Segment::alignment);
  return stage;
}

class StageStates {
 public:
  StageStates(const Layout& layout, const MemoryOptions& options, int stage, const ChunkLayers& all,
              const ParameterRecording& recording)
      : layout_(layout),
        options_(options),
        stage_(stage),
        mesh_(layout.mesh()),
        of_(stage_parameters(recording, all, layout.zero_stage >= 2 && !options.copies_state)),
        reducer_(reducer_options(layout, {all}, options.types.wire, options.message_scale)),
        layer_size_(round_up(recording.block().flat_size, Segment::alignment)) {
    reducer_.layers_of_chunk = {of_.layers};
    reducer_.layer_times = of_.layer_times;
  }

  // Of as many ranks as there is time to look at, at least the first and the last: they differ by a row a slice.
  MemoryByCategory most(AlikeRanks ranks) const {
    const ReductionShares shares(of_.declared.segments, of_.declared.parameters, group_ranks(ranks.first, 0), reducer_,
                                 state_size());
    const Index all = Index{ranks.end - ranks.first} * layout_.data;
    const Index in_time = max_slices / std::max<Index>(1, static_cast<Index>(shares.num_buckets()));
    const Index wanted = all > max_ranks ? sample_ranks : all;
    const Index seen = options_.copies_state ? all : std::min(wanted, std::max<Index>(in_time, 2));
    MemoryByCategory most;
    for (Index i = 0; i < seen; ++i) {
      const Index which = seen > 1 ? i * (all - 1) / (seen - 1) : 0;
      const int rank =
          rank_at(ranks.first + static_cast<int>(which / layout_.data), static_cast<int>(which % layout_.data));
      const GroupRanks ours = mesh_.group_ranks(rank);
      const MemoryByCategory memory =
          memory_of(shares.of(ours), options_.copies_state ? checkpoint_copy(plan_of(ours), rank) : 0);
      if (memory.total() >= most.total())
        most = memory;
    }
    return most;
  }

 private:
  static constexpr Index max_ranks = 64;        // of which all are looked at
  static constexpr Index sample_ranks = 8;      // of more
  static constexpr Index max_slices = 1 << 17;  // of them

  int rank_at(int tensor_rank, int replica) const {
    return mesh_.rank_at(PerAxis::coordinates(tensor_rank, replica, stage_));
  }
  GroupRanks group_ranks(int tensor_rank, int replica) const {
    return mesh_.group_ranks(rank_at(tensor_rank, replica));
  }
  Index state_size() const { return static_cast<Index>(size_of(options_.types.state())); }
  ReductionPlan plan_of(const GroupRanks& ranks) const {
    return plan_reduction(of_.declared.segments, of_.declared.parameters, ranks, reducer_, state_size());
  }

  Index num_layers() const { return of_.layer_times.empty() ? of_.layers : of_.layer_times.front() + 1; }

  // Of all layers; the last ends with the flat arrays where nothing is behind it.
  Index units_size() const {
    const Segment& last = of_.declared.segments.back();
    const bool is_layer = last.block >= 1 && last.block <= of_.layers;
    return num_layers() * layer_size_ - (is_layer ? round_up(of_.flat_size, Segment::alignment) - of_.flat_size : 0);
  }

  MemoryByCategory memory_of(const ReductionShare& share, std::uint64_t copy) const {
    const Index layers = layout_.zero_stage >= 2 ? num_layers() : 0;
    const auto held = [&](bool is_sharded, Index buffers) {
      return is_sharded && layers > 0 ? of_.flat_size - units_size() + share.owned_in_units + buffers * layer_size_
                                      : of_.flat_size;
    };
    const StateBytes bytes = state_bytes(options_.types);
    MemoryByCategory memory;
    const auto set = [&](Category category, std::size_t value) {
      memory.bytes[static_cast<std::size_t>(category)] = value;
    };
    const UnitBuffers buffers = unit_buffers(layout_, {{.count = layers}});
    set(Category::weights, to_bytes(held(layout_.zero_stage == 3, buffers.weights), bytes.weights));
    set(Category::gradients, to_bytes(held(layout_.zero_stage >= 2, buffers.gradients), bytes.gradients));
    set(Category::optimizer, to_bytes(layout_.zero_stage > 0 ? share.owned : of_.flat_size, bytes.optimizer));
    set(Category::communication, static_cast<std::size_t>(share.buffer_bytes));
    set(Category::other, static_cast<std::size_t>(copy));
    return memory;
  }

  // What a save behind the training keeps on a rank: the weights (or master weights) and moments that it writes.
  std::uint64_t checkpoint_copy(const ReductionPlan& plan, int rank) const {
    const bool is_shared = layout_.zero_stage > 0;
    const auto counted = [&](const std::vector<IndexRange>& ranges, bool by_slice) {
      return total_size(unique_ranges(of_.declared.parameters, ranges, mesh_, rank, by_slice));
    };
    const std::vector<IndexRange> all = {{0, of_.flat_size}};
    const Index moments = counted(is_shared ? plan.owned : all, is_shared);
    const Index weights =
        options_.types.has_master_weights() || layout_.zero_stage == 3 ? moments : counted(all, false);
    return static_cast<std::uint64_t>((weights + 2 * moments) * state_size());
  }

  const Layout& layout_;
  const MemoryOptions& options_;
  int stage_;
  MeshLayout mesh_;
  StageParameters of_;
  ReducerOptions reducer_;
  Index layer_size_;
};

}  // namespace

StateMemory& StateMemory::of(const ModelConfig& model) {
  thread_local StateMemory memory;
  if (memory.model_ != model) {
    memory = {};
    memory.model_ = model;
  }
  return memory;
}

MemoryByCategory StateMemory::most(const Layout& layout, const MemoryOptions& options, int stage,
                                   const std::vector<ChunkLayers>& chunks, AlikeRanks ranks) {
  const ChunkLayers all = together(chunks);
  const Key key{.tensor = layout.tensor,
                .data = layout.data,
                .zero_stage = layout.zero_stage,
                .shard_replicas = layout.shard_replicas,
                .first_level_replicas = layout.first_level_replicas,
                .first_rank = ranks.first,
                .keep_gathered = layout.keep_gathered,
                .sequence_parallel = layout.sequence_parallel,
                .compute = options.types.compute,
                .wire = options.types.wire,
                .copies_state = options.copies_state,
                .logit_multiple = options.logits.multiple,
                .message_scale = options.message_scale,
                .has_next_stage = stage + 1 < layout.pipeline,
                .has_stage_before = stage > 0,
                .layers = all.count,
                .embedding = all.embedding,
                .head = all.head};
  const auto [known, is_new] = known_.try_emplace(key);
  if (is_new) {
    const TensorPart part{ranks.first, layout.tensor, layout.sequence_parallel, options.logits.multiple};
    known->second = StageStates(layout, options, stage, all, parameter_recording(model_, part)).most(ranks);
  }
  return known->second;
}

}  // namespace espalier
