// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "models/layout.hpp"
#include "models/model_config.hpp"

// How many layers each part of a model has: `train` and `plan` ask here.

namespace espalier {

/// Layers of each part of the model in its order, balanced by what the items of the model cost under the recomputation
/// of the stage that they lie on. `costs` is asked once for each mode.
std::vector<Index> layers_by_cost(Index num_layers, const Layout& layout,
                                  const std::function<LayerCosts(Recompute)>& costs);

/// The layers that the layout gives; those that it leaves open are balanced by counted FLOPs. `plan` asks for them
/// again and again while it searches: each answer is cached. @pre no more parts than layers, where they are open
std::vector<Index> part_layers(const ModelConfig& model, Index sequence_length, const Layout& layout);

}  // namespace espalier
