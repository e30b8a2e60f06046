// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "training/config/run_config.hpp"

// Hybrid sharding, parallel.shard_over = "node": the replicas of a node share one copy of what ZeRO shards. And sums
// over many replicas: those of a node sum first.

namespace espalier {

class Communicator;

/// Ranks on each node. `host`: those of the world that share a node with this one. Collective over `world`.
/// @throws Error (ExitCode::usage) where nodes have unlike numbers of ranks, or ranks that are not consecutive
int ranks_per_node(const Communicator& world, const Communicator& host);

/// From now on config.ranks_per_node is that of this job, where the config asks for it, or many ranks are summed over
/// (0 where nodes differ). Where device links carry the sums, NCCL has levels of its own. Collective over `world`.
/// @throws Error: see ranks_per_node()
void resolve_ranks_per_node(RunConfig& config, const Communicator& world);

/// The layout with what the nodes of the config decide, see models/layout_rules.hpp. @pre its replicas are known
/// @throws Error (ExitCode::usage) where nobody has said how many ranks a node has, or nodes have unlike numbers of
/// replicas
Layout with_shards(const RunConfig& config, const Layout& layout);

}  // namespace espalier
