// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/collective_time.hpp"

#include <algorithm>
#include <cmath>

namespace espalier {

int AxisPlacement::per_node(const Cluster& cluster) const {
  return std::clamp(cluster.devices_per_node / std::max(stride, 1), 1, size);
}

bool crosses_nodes(const Cluster& cluster, const AxisPlacement& axis) { return axis.per_node(cluster) < axis.size; }

double collective_seconds(const Cluster& cluster, Collective kind, const AxisPlacement& axis, double bytes,
                          bool one_ring) {
  if (axis.size <= 1)
    return 0;
  const double n = axis.size;
  const double g = axis.per_node(cluster);
  const double k = std::ceil(n / g);
  const bool reduces_all = kind == Collective::all_reduce;
  const double alone = std::max(cluster.network.alone, cluster.network.bandwidth);
  const double bandwidth =
      k > 1 && one_ring ? std::min(cluster.node.bandwidth, alone)
      : k > 1 ? (g > 1 ? std::min(cluster.node.bandwidth, g * cluster.network.bandwidth) : cluster.network.bandwidth)
              : cluster.node.bandwidth;
  const double passes = reduces_all ? 2 : 1;
  const double network_steps = k <= 1 ? 0 : reduces_all ? 2 * std::ceil(std::log2(k)) : k - 1;
  const double latency = passes * std::log2(g) * cluster.node.latency + network_steps * cluster.network.latency;
  return latency + passes * (n - 1) / n * bytes / bandwidth;
}

double message_seconds(const Cluster& cluster, const AxisPlacement& axis, double bytes) {
  const LinkTier& link = crosses_nodes(cluster, axis) ? cluster.network : cluster.node;
  return link.latency + bytes / link.bandwidth;
}

}  // namespace espalier
