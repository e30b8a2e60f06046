// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "models/declared_parameters.hpp"
#include "models/rank_memory.hpp"

namespace espalier {

/// Tensor ranks with equal shapes: their memory differs only by the slices that they own.
struct AlikeRanks {
  int first = 0;
  int end = 1;
};

/// Memory of weights, gradients, optimizer state, buffers of the reduction and copies of the state. It depends on few
/// of a layout's choices, and the search of `plan` asks for it often, so results are cached.
class StateMemory {
 public:
  /// Cached until another model is asked for.
  static StateMemory& of(const ModelConfig& model);

  /// Of the rank of a stage, among `ranks` of the tensor axis and all replicas, that has most.
  MemoryByCategory most(const Layout& layout, const MemoryOptions& options, int stage,
                        const std::vector<ChunkLayers>& chunks, AlikeRanks ranks);

 private:
  /// All that the answer depends on, beside the model.
  struct Key {
    int tensor, data, zero_stage, shard_replicas, first_level_replicas, first_rank;
    bool keep_gathered, sequence_parallel;
    ScalarType compute;
    std::optional<ScalarType> wire;
    bool copies_state;
    Index logit_multiple;
    double message_scale;
    bool has_next_stage, has_stage_before;
    Index layers;
    bool embedding, head;
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr): of doubles, clang-tidy 14 errs
  };

  ModelConfig model_;
  std::map<Key, MemoryByCategory> known_;
};

}  // namespace espalier
