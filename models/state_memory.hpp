// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "models/declared_parameters.hpp"
#include "models/rank_memory.hpp"

namespace espalier {

/// Tensor ranks with equal shapes, whose memory differs by the slices that they own alone.
struct AlikeRanks {
  int first = 0;
  int end = 1;
};

/// What ranks hold of weights, gradients, optimizer state, buffers of the reduction and copies of the state. `plan`
/// asks for it again and again while it searches, and it depends on few of a layout's choices: each answer is kept.
class StateMemory {
 public:
  /// Kept until another model is asked for.
  static StateMemory& of(const ModelConfig& model);

  /// Of the rank of a stage, among `ranks` of the tensor axis and all replicas, that has most.
  MemoryByCategory most(const Layout& layout, const MemoryOptions& options, int stage,
                        const std::vector<ChunkLayers>& chunks, AlikeRanks ranks);

 private:
  ModelConfig model_;
  std::map<std::vector<double>, MemoryByCategory> known_;
};

}  // namespace espalier
