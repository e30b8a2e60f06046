// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/layer_partition.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"

namespace espalier {

std::vector<std::vector<ChunkLayers>> partition_layers(const std::vector<Index>& layers_per_part, int stages,
                                                       int chunks) {
  const auto parts = static_cast<std::size_t>(stages) * static_cast<std::size_t>(chunks);
  ESPALIER_ASSERT(layers_per_part.size() == parts, "one number of layers is wanted for each part");
  std::vector<std::vector<ChunkLayers>> result(static_cast<std::size_t>(stages));
  Index first = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    result[part % static_cast<std::size_t>(stages)].push_back(
        {.first = first, .count = layers_per_part[part], .embedding = part == 0, .head = part + 1 == parts});
    first += layers_per_part[part];
  }
  return result;
}

std::vector<ChunkLayers> one_chunk(Index num_layers, Recompute recompute) {
  return {{.first = 0, .count = num_layers, .embedding = true, .head = true, .recompute = recompute}};
}

// The smallest limit that no part exceeds is what some part costs with some number of blocks. To see
// whether a limit can be kept, each part gets as many blocks as stay below it: of one part, all blocks cost alike.
std::vector<Index> balance_layers(Index num_layers, const std::vector<LayerCosts>& costs) {
  const std::size_t parts = costs.size();
  ESPALIER_ASSERT(parts >= 1 && static_cast<Index>(parts) <= num_layers, "each part needs a layer");
  const auto cost = [&](std::size_t part, Index blocks) {
    const double fixed = (part == 0 ? costs[part].embedding : 0) + (part + 1 == parts ? costs[part].head : 0);
    return fixed + static_cast<double>(blocks) * costs[part].block;
  };
  const auto blocks_below = [&](std::size_t part, double limit) {
    constexpr double rounding = 1e-9;
    const double blocks = (limit - cost(part, 0)) / costs[part].block;
    return std::max<Index>(1, static_cast<Index>(blocks + rounding));
  };
  const auto is_exceeded = [&](double limit) {
    Index total = 0;
    for (std::size_t part = 0; part < parts; ++part)
      total += blocks_below(part, limit);
    return total < num_layers;
  };
  std::vector<double> limits;
  for (std::size_t part = 0; part < parts; ++part) {
    if (part > 0 && cost(part, 1) == cost(part - 1, 1) && costs[part].block == costs[part - 1].block)
      continue;  // the same limits
    for (Index blocks = 1; blocks <= num_layers; ++blocks)
      limits.push_back(cost(part, blocks));
  }
  std::sort(limits.begin(), limits.end());
  const double limit = *std::partition_point(limits.begin(), limits.end(), is_exceeded);

  // Among the ways to keep the limit: as even as it allows. Spare layers are taken from the part that costs most, among
  // equals from the first.
  std::vector<Index> layers;
  for (std::size_t part = 0; part < parts; ++part)
    layers.push_back(blocks_below(part, limit));
  for (Index spare = std::accumulate(layers.begin(), layers.end(), Index{0}) - num_layers; spare > 0; --spare) {
    std::size_t costliest = parts;
    for (std::size_t part = 0; part < parts; ++part)
      if (layers[part] > 1 && (costliest == parts || cost(part, layers[part]) > cost(costliest, layers[costliest])))
        costliest = part;
    --layers[costliest];
  }
  return layers;
}

std::vector<int> stage_of_layers(const std::vector<std::vector<ChunkLayers>>& stages) {
  Index num_layers = 0;
  for (const auto& chunks : stages)
    for (const ChunkLayers& chunk : chunks)
      num_layers += chunk.count;
  std::vector<int> result(static_cast<std::size_t>(num_layers));
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    for (const ChunkLayers& chunk : stages[stage])
      std::fill_n(result.begin() + chunk.first, chunk.count, static_cast<int>(stage));
  return result;
}

std::vector<int> round_robin_stages(Index num_layers, int stages) {
  std::vector<int> result;
  for (Index layer = 0; layer < num_layers; ++layer)
    result.push_back(static_cast<int>(layer % stages));
  return result;
}

int boundary_transfers(const std::vector<int>& stage_of_layer) {
  int transfers = 0;
  for (std::size_t i = 1; i < stage_of_layer.size(); ++i)
    transfers += stage_of_layer[i] != stage_of_layer[i - 1] ? 1 : 0;
  return transfers;
}

}  // namespace espalier
