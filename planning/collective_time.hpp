// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/work.hpp"
#include "models/layout.hpp"
#include "planning/cluster.hpp"
#include "planning/implementation.hpp"

namespace espalier {

/// The ranks of one axis as they lie on the machine: `size` of them, `stride` ranks apart; or in runs of `run` members
/// that are so far apart, the runs themselves `run_stride` ranks from one to the next.
struct AxisPlacement {
  int size = 1;
  int stride = 1;
  int run = 0;  ///< 0: all of them
  int run_stride = 0;

  /// Members of a group on the node where it has fewest: all of them where every group lies inside a node. Their links
  /// bound a collective that leaves the node.
  int per_node(const Cluster& cluster) const;
  /// Nodes that a group touches, the most of any.
  int num_nodes(const Cluster& cluster) const;
};

/// The groups of a layout's ranks.
inline AxisPlacement tensor_axis(const Layout& layout) { return {layout.tensor, 1}; }
inline AxisPlacement context_axis(const Layout& layout) { return {layout.context, layout.tensor}; }
AxisPlacement data_axis(const Layout& layout);   ///< replicas of a shard: data x context
AxisPlacement shard_axis(const Layout& layout);  ///< of them those that share one copy of what ZeRO shards
AxisPlacement copy_axis(const Layout& layout);   ///< those that hold one shard in all copies
AxisPlacement pipeline_axis(const Layout& layout);
AxisPlacement expert_axis(const Layout& layout,
                          const Experts& experts);  ///< of shard_axis() and tensor ranks, those that hold one expert

/// The layout with what this cluster's nodes decide, see models/layout_rules.hpp.
Layout with_shards(const Layout& layout, const Cluster& cluster);

/// Messages of a collective that follow one another, each with the latency of its link.
struct LatencySteps {
  double inside = 0;   ///< nodes
  double between = 0;  ///< nodes
};
/// @param members of a group on a node  @param nodes that the group touches
LatencySteps latency_steps(Collective kind, int members, int nodes);

/// What passes the link of each rank, of the bytes of the whole payload: 2 (n - 1) / n of an all_reduce, else half of
/// that [nccl-tests, PERFORMANCE.md].
double passed_share(Collective kind, int ranks);

/// Seconds of a collective whose whole payload (the reduced array, the gathered array) has `bytes`.
/// Ring: all_reduce moves 2 (n - 1) / n of it through each device, the others (n - 1) / n [nccl-tests, PERFORMANCE.md];
/// a group that spans nodes with g members on each is bound by the lesser of the links inside and g network shares.
/// Latency: log2 g steps inside a node, where every device reaches every other; between nodes a tree of 2 ceil(log2 k)
/// steps for all_reduce (NCCL takes trees for it), a ring of k - 1 for the others (it has none). `one_ring`: through
/// one network card of a node.
double collective_seconds(const Cluster& cluster, Collective kind, const AxisPlacement& axis, double bytes,
                          bool one_ring = false);

/// Seconds of an all_to_all in which a row of `bytes` goes to `copies` ranks by chance: what leaves a node goes through
/// the rank's own share of its network cards, beside what stays. `once`: a row goes once to each node and rank that has
/// some of its places (DeepEP, HybridEP), where it is copied.
double all_to_all_seconds(const Cluster& cluster, const AxisPlacement& axis, double bytes, double copies, bool once);

/// Seconds of one message between neighbours of an axis.
double message_seconds(const Cluster& cluster, const AxisPlacement& axis, double bytes);

/// Whether neighbours of the axis lie on different nodes anywhere.
bool crosses_nodes(const Cluster& cluster, const AxisPlacement& axis);

}  // namespace espalier
