// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/broken_rule.hpp"
#include "models/layout.hpp"
#include "models/model_config.hpp"

// What a layout must be for a model and its sequences, on any machine: `train` and `plan` refuse the same layouts with
// the same sentences.

namespace espalier {

/// All rules that the layout breaks. @pre its replicas, micro-batch and virtual stages are known
std::vector<BrokenRule> broken_rules(const ModelConfig& model, Index sequence_length, const Layout& layout);

/// Whether each chunk of each stage gets a layer.
bool has_layer_for_each_part(const ModelConfig& model, Index pipeline, Index virtual_stages);

/// The number of virtual stages that the schedule takes: "1f1b has 1 virtual stage per stage".
std::string virtual_stages_text(ScheduleKind schedule);

/// The layout with Layout::shard_replicas and first_level_replicas as nodes of so many ranks give them; where shards
/// lie within nodes and each replica is alone on its node, without ZeRO.
/// @param ranks_per_node 0: not known, then no replicas share a node
/// @param max_summed_at_once see first_level_replicas()
Layout with_shards(Layout layout, int ranks_per_node, int max_summed_at_once);

/// Chunks of a stage where layers are dealt round-robin: one for each layer.
int round_robin_chunks(const ModelConfig& model, int pipeline);

/// A config's layout without what does nothing: sequence parallelism of one tensor rank, ZeRO of one replica; with what
/// follows from the model: copies of heads, chunks of round_robin. Shards and open layers stay as they are.
Layout acting_layout(Layout layout, const ModelConfig& model);

/// Why nodes cannot share states among their replicas (ShardOver::node); empty when they can, or need not.
std::string why_unlike_nodes(const Layout& layout, int ranks_per_node);

/// Numbers of tensor ranks that can share the model, in order.
std::vector<Index> tensor_degrees(const ModelConfig& model);

}  // namespace espalier
