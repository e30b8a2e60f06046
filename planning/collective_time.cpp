// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/collective_time.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/layout_rules.hpp"

namespace espalier {
namespace {

// How the worst of an axis's groups lies on nodes.
struct Spread {
  int nodes = 1;    // that it touches
  int members = 1;  // on the node where it has fewest
};

// The groups of an axis fill blocks of size x stride ranks, one after another. Where a block is no divisor or multiple
// of a node, nodes cut some of them: nodes of 6, blocks of 4: 4 | 2 2 | 4. The cuts repeat after node / gcd blocks.
Spread spread(const Cluster& cluster, const AxisPlacement& axis) {
  if (axis.run > 0) {
    const Spread within = spread(cluster, {.size = axis.run, .stride = axis.stride});
    const Spread across = spread(cluster, {.size = axis.size / axis.run, .stride = axis.run_stride});
    return within.nodes == 1 ? Spread{.nodes = across.nodes, .members = axis.run * across.members}
                             : Spread{.nodes = within.nodes * (axis.size / axis.run), .members = within.members};
  }
  const int block = axis.size * axis.stride;
  const int node = cluster.devices_per_node;
  const int different = std::clamp(cluster.num_devices() / block, 1, node / std::gcd(node, block));
  int most_nodes = 1;
  int fewest_ranks = block;
  for (int i = 0; i < different; ++i) {
    const int begin = i * block % node;
    const int end = begin + block;
    const int on_first = std::min(block, node - begin);
    const int on_last = (end - 1) % node + 1;
    fewest_ranks = std::min({fewest_ranks, on_first, on_last});
    most_nodes = std::max(most_nodes, (end - 1) / node + 1);
  }
  return {.nodes = std::min(most_nodes, axis.size), .members = std::clamp(fewest_ranks / axis.stride, 1, axis.size)};
}

// Context ranks hold the same weights: their gradients are summed in the same collective. They lie side by side above
// the tensor ranks; replicas follow them, or follow the stages.
AxisPlacement replicas_axis(const Layout& layout, int replicas) {
  const int size = replicas * layout.context;
  if (layout.data_inside_pipeline())
    return {.size = size, .stride = layout.tensor};
  return {.size = size,
          .stride = layout.tensor,
          .run = layout.context,
          .run_stride = layout.tensor * layout.context * layout.pipeline};
}

}  // namespace

AxisPlacement data_axis(const Layout& layout) { return replicas_axis(layout, layout.data); }

AxisPlacement shard_axis(const Layout& layout) {
  return replicas_axis(layout, layout.zero_stage > 0 ? layout.shards() : layout.data);
}

AxisPlacement expert_axis(const Layout& layout, const Experts& experts) {
  AxisPlacement axis = shard_axis(layout);
  if (experts.parallel == 1)
    return axis;
  return {.size = std::max(1, axis.size * layout.tensor / experts.parallel), .stride = experts.parallel};
}

AxisPlacement copy_axis(const Layout& layout) {
  const int replicas = layout.shards();
  const int from_replica = layout.tensor * layout.context * (layout.data_inside_pipeline() ? 1 : layout.pipeline);
  return {.size = layout.zero_stage > 0 ? layout.data / replicas : 1, .stride = from_replica * replicas};
}

Layout with_shards(const Layout& layout, const Cluster& cluster) {
  const bool by_nccl = !cluster.device.moves_messages;  // which sums among all at once
  return with_shards(layout, cluster.devices_per_node, by_nccl ? layout.num_devices() : default_max_summed_at_once);
}

AxisPlacement pipeline_axis(const Layout& layout) {
  const int inside = layout.tensor * layout.context;
  return {layout.pipeline, layout.data_inside_pipeline() ? inside * layout.data : inside};
}

int AxisPlacement::per_node(const Cluster& cluster) const { return spread(cluster, *this).members; }

int AxisPlacement::num_nodes(const Cluster& cluster) const { return spread(cluster, *this).nodes; }

bool crosses_nodes(const Cluster& cluster, const AxisPlacement& axis) { return axis.num_nodes(cluster) > 1; }

LatencySteps latency_steps(Collective kind, int members, int nodes) {
  const bool reduces_all = kind == Collective::all_reduce;
  return {.inside = (reduces_all ? 2 : 1) * std::log2(members),
          .between = nodes <= 1    ? 0
                     : reduces_all ? 2 * std::ceil(std::log2(nodes))
                                   : nodes - 1.0};
}

double passed_share(Collective kind, int ranks) {
  return (kind == Collective::all_reduce ? 2.0 : 1.0) * (ranks - 1) / ranks;
}

double collective_seconds(const Cluster& cluster, Collective kind, const AxisPlacement& axis, double bytes,
                          bool one_ring) {
  if (axis.size <= 1)
    return 0;
  const auto [nodes, members] = spread(cluster, axis);
  const double g = members;
  const double alone = std::max(cluster.network.alone, cluster.network.bandwidth);
  const double bandwidth = nodes > 1 && one_ring ? std::min(cluster.node.bandwidth, alone)
                           : nodes > 1 ? (g > 1 ? std::min(cluster.node.bandwidth, g * cluster.network.bandwidth)
                                                : cluster.network.bandwidth)
                                       : cluster.node.bandwidth;
  const LatencySteps steps = latency_steps(kind, members, nodes);
  const double latency = steps.inside * cluster.node.latency + steps.between * cluster.network.latency;
  return latency + passed_share(kind, axis.size) * bytes / bandwidth;
}

double all_to_all_seconds(const Cluster& cluster, const AxisPlacement& axis, double bytes, double copies, bool once) {
  if (axis.size <= 1)
    return 0;
  const double size = axis.size;
  const double members = axis.per_node(cluster);
  const double nodes = axis.num_nodes(cluster);
  // Of `all` places those that a row goes to, and goes to once.
  const auto reached = [&](double all) { return all * (1 - std::pow(1 - 1 / all, copies)); };
  const double inside = once ? reached(size) * (members - 1) / members : copies * (members - 1) / size;
  const double outside = nodes <= 1 ? 0
                         : once     ? reached(nodes) * (nodes - 1) / nodes
                                    : copies * (size - members) / size;
  const double latency = std::log2(members) * cluster.node.latency + (nodes - 1) * cluster.network.latency;
  return latency + bytes * std::max(inside / cluster.node.bandwidth, outside / cluster.network.bandwidth);
}

double message_seconds(const Cluster& cluster, const AxisPlacement& axis, double bytes) {
  const LinkTier& link = crosses_nodes(cluster, axis) ? cluster.network : cluster.node;
  return link.latency + bytes / link.bandwidth;
}

}  // namespace espalier
