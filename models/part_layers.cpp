// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/part_layers.hpp"

#include <map>
#include <utility>

#include "models/cost.hpp"

namespace espalier {
namespace {

// Of one model and sequence length: by the number of parts, where all recompute alike.
struct KnownLayers {
  ModelConfig model;
  Index sequence_length = 0;
  std::map<std::pair<int, Recompute>, std::vector<Index>> of_parts;
};

KnownLayers& known_layers(const ModelConfig& model, Index sequence_length) {
  thread_local KnownLayers known;
  if (known.model != model || known.sequence_length != sequence_length)
    known = {.model = model, .sequence_length = sequence_length, .of_parts = {}};
  return known;
}

}  // namespace

std::vector<Index> layers_by_cost(Index num_layers, const Layout& layout,
                                  const std::function<LayerCosts(Recompute)>& costs) {
  std::map<Recompute, LayerCosts> by_mode;
  std::vector<LayerCosts> by_part(static_cast<std::size_t>(layout.num_parts()));
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    const Recompute mode = layout.recompute_of(stage);
    if (!by_mode.contains(mode))
      by_mode[mode] = costs(mode);
    for (int chunk = 0; chunk < layout.virtual_stages; ++chunk)
      by_part[static_cast<std::size_t>(layout.part_of(stage, chunk))] = by_mode[mode];
  }
  return balance_layers(num_layers, by_part);
}

std::vector<Index> part_layers(const ModelConfig& model, Index sequence_length, const Layout& layout) {
  if (!layout.layers.empty())
    return layout.layers;
  const auto by_flops = [&] {
    return layers_by_cost(model.num_layers, layout,
                          [&](Recompute mode) { return layer_flops(model, sequence_length, mode); });
  };
  if (!layout.recompute_per_stage.empty())
    return by_flops();
  const auto [known, is_new] =
      known_layers(model, sequence_length).of_parts.try_emplace({layout.num_parts(), layout.recompute});
  if (is_new)
    known->second = by_flops();
  return known->second;
}

}  // namespace espalier
