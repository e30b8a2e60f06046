// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "models/recompute.hpp"

// Which layers lie on which stage of a pipeline. Part g = chunk * stages + stage of the model sends its output to part
// g + 1.

namespace espalier {

/// How layers are assigned to stages.
enum class Assignment {
  consecutive,  ///< neighbours stay together
  round_robin   ///< each layer is a chunk of its own: for comparison only
};
constexpr const char* to_string(Assignment assignment) {
  return assignment == Assignment::round_robin ? "round_robin" : "consecutive";
}

/// The layers of one chunk: consecutive transformer blocks, with the embedding before the first block of the model, and
/// the head after its last.
struct ChunkLayers {
  Index first = 0;
  Index count = 0;
  bool embedding = false;
  bool head = false;
  Recompute recompute = Recompute::none;

  /// Of parameters, and of BlockDone: position 0 is the embedding, then the blocks, then the head.
  int num_positions() const { return static_cast<int>(count) + 2; }
  bool operator==(const ChunkLayers&) const = default;
};

/// The chunks of every stage: result[stage][chunk]. `layers_per_part` gives the blocks of each part in forward order,
/// stages x chunks of them. Pure.
std::vector<std::vector<ChunkLayers>> partition_layers(const std::vector<Index>& layers_per_part, int stages,
                                                       int chunks);

/// The whole model in one chunk.
std::vector<ChunkLayers> one_chunk(Index num_layers, Recompute recompute = Recompute::none);

/// The costs of embedding, block and head, in any unit.
struct LayerCosts {
  double embedding = 0;
  double block = 1;
  double head = 0;
};

/// The number of blocks of each of the consecutive parts, at least one each, that minimizes the cost of the costliest
/// part. The first part also has the embedding, the last the head. Of equal solutions later parts get more: in 1F1B
/// earlier stages keep the activations of more micro-batches. (With virtual stages each stage has earlier and later
/// parts.) Pure.
/// @param costs of each part: stages may recompute differently
/// @pre 1 <= costs.size() <= num_layers
std::vector<Index> balance_layers(Index num_layers, const std::vector<LayerCosts>& costs);

/// The same with equal costs on every part.
inline std::vector<Index> balance_layers(Index num_layers, int parts, const LayerCosts& costs) {
  return balance_layers(num_layers, std::vector<LayerCosts>(static_cast<std::size_t>(parts), costs));
}

/// Number of forward messages of one micro-batch between stages. Consecutive parts send at the end of a stage only;
/// `round_robin` sends after every layer.
int boundary_transfers(const std::vector<int>& stage_of_layer);
std::vector<int> stage_of_layers(const std::vector<std::vector<ChunkLayers>>& stages);
std::vector<int> round_robin_stages(Index num_layers, int stages);

}  // namespace espalier
