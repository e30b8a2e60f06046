// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "models/recompute.hpp"

// Which layers lie on which stage of a pipeline. Part g = chunk * stages + stage of the model feeds part g + 1.

namespace espalier {

/// How layers come to stages.
enum class Assignment {
  consecutive,  ///< neighbours stay together
  round_robin   ///< each layer is a chunk of its own: for comparison only
};
constexpr const char* to_string(Assignment assignment) {
  return assignment == Assignment::round_robin ? "round_robin" : "consecutive";
}

/// Consecutive transformer blocks, with what stands before the first and behind the last one of the model.
struct ChunkLayers {
  Index first = 0;
  Index count = 0;
  bool embedding = false;
  bool head = false;
  Recompute recompute = Recompute::none;

  /// Positions for parameters: 0 the embedding, then the blocks, then the head.
  int num_blocks() const { return static_cast<int>(count) + 2; }
  bool operator==(const ChunkLayers&) const = default;
};

/// The chunks of every stage: result[stage][chunk]. `layers_per_part` gives the blocks of each part in forward order,
/// stages x chunks of them. Pure.
std::vector<std::vector<ChunkLayers>> partition_layers(const std::vector<Index>& layers_per_part, int stages,
                                                       int chunks);

/// The whole model in one chunk.
std::vector<ChunkLayers> one_chunk(Index num_layers, Recompute recompute = Recompute::none);

/// What the items of a model cost, in any unit.
struct LayerCosts {
  double embedding = 0;
  double block = 1;
  double head = 0;
};

/// Blocks of each of the consecutive parts, at least one each, so that the costliest part is as cheap as possible; the
/// first also has the embedding, the last the head. Among equals the earlier parts get more. Pure.
/// @param costs of the items on each part: where stages recompute differently, a block costs what its stage makes of
/// it.
/// @pre 1 <= costs.size() <= num_layers
std::vector<Index> balance_layers(Index num_layers, const std::vector<LayerCosts>& costs);

/// The same where the items cost as much on every part.
inline std::vector<Index> balance_layers(Index num_layers, int parts, const LayerCosts& costs) {
  return balance_layers(num_layers, std::vector<LayerCosts>(static_cast<std::size_t>(parts), costs));
}

/// Messages of one micro-batch between stages, forward: consecutive parts leave a stage only where it ends; dealing the
/// layers out one by one (`round_robin`) crosses a boundary after every layer.
int boundary_transfers(const std::vector<int>& stage_of_layer);
std::vector<int> stage_of_layers(const std::vector<std::vector<ChunkLayers>>& stages);
std::vector<int> round_robin_stages(Index num_layers, int stages);

}  // namespace espalier
