// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
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
  ModelConfig model_;
  std::map<std::vector<double>, MemoryByCategory> known_;
};

}  // namespace espalier
