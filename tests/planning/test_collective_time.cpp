// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "planning/collective_time.hpp"
#include "training/prediction/calibration.hpp"

using namespace espalier;

namespace {

Cluster machine() {
  Cluster cluster;
  cluster.num_nodes = 4;
  cluster.devices_per_node = 8;
  cluster.node = {.bandwidth = 200e9, .latency = 0, .alone = 0};
  cluster.network = {.bandwidth = 10e9, .latency = 0, .alone = 15e9};
  return cluster;
}

// nccl-tests, PERFORMANCE.md: t = S 2 (n - 1) / (n B).
TEST(CollectiveTime, ring_inside_a_node) {
  const double payload = 1e9;
  EXPECT_DOUBLE_EQ(collective_seconds(machine(), Collective::all_reduce, {8, 1}, payload),
                   2 * 7.0 / 8 * payload / 200e9);
  EXPECT_DOUBLE_EQ(collective_seconds(machine(), Collective::all_gather, {8, 1}, payload), 7.0 / 8 * payload / 200e9);
  EXPECT_DOUBLE_EQ(collective_seconds(machine(), Collective::reduce_scatter, {4, 2}, payload),
                   3.0 / 4 * payload / 200e9);
  EXPECT_EQ(collective_seconds(machine(), Collective::all_reduce, {1, 1}, payload), 0);
}

// A group that spans nodes has the network shares of its members on each, as many as there are.
TEST(CollectiveTime, several_nodes_are_bound_by_the_network_shares) {
  const double payload = 1e9;
  EXPECT_DOUBLE_EQ(collective_seconds(machine(), Collective::all_reduce, {32, 1}, payload),
                   2 * 31.0 / 32 * payload / 80e9);
  EXPECT_DOUBLE_EQ(collective_seconds(machine(), Collective::all_reduce, {4, 8}, payload),
                   2 * 3.0 / 4 * payload / 10e9);
  EXPECT_DOUBLE_EQ(collective_seconds(machine(), Collective::all_gather, {32, 1}, payload, true),
                   31.0 / 32 * payload / 15e9);
}

// Nodes of 6, groups of 4: ranks 4 to 7 have two members on each of two nodes. Nodes of 72, groups of 16: 64 to 79
// have 8.
TEST(CollectiveTime, groups_that_nodes_cut_pay_the_network) {
  Cluster six = machine();
  six.devices_per_node = 6;
  EXPECT_TRUE(crosses_nodes(six, {4, 1}));
  EXPECT_EQ(AxisPlacement({4, 1}).per_node(six), 2);
  EXPECT_EQ(AxisPlacement({4, 1}).num_nodes(six), 2);
  EXPECT_DOUBLE_EQ(collective_seconds(six, Collective::all_reduce, {4, 1}, 1e9), 2 * 3.0 / 4 * 1e9 / 20e9);
  EXPECT_DOUBLE_EQ(message_seconds(six, {4, 1}, 1e6), 1e6 / 10e9);
  EXPECT_FALSE(crosses_nodes(six, {3, 2}));
  EXPECT_TRUE(crosses_nodes(six, {2, 4}));  // 8 and 12
  six.num_nodes = 1;                        // where there is one block alone, nothing cuts it
  EXPECT_FALSE(crosses_nodes(six, {4, 1}));

  Cluster domains = machine();
  domains.devices_per_node = 72;
  domains.num_nodes = 16;
  for (const int size : {16, 32, 64}) {
    EXPECT_EQ(AxisPlacement({size, 1}).per_node(domains), 8) << size;
    EXPECT_EQ(AxisPlacement({size, 1}).num_nodes(domains), 2) << size;
  }
  EXPECT_EQ(AxisPlacement({8, 8}).per_node(domains), 1);  // 64 | 72, 80, ... 120
  domains.num_nodes = 2;
  EXPECT_EQ(AxisPlacement({16, 8}).per_node(domains), 7);  // one block: 9 | 7
}

TEST(CollectiveTime, latency_counts_steps) {
  Cluster cluster = machine();
  cluster.node.latency = 1e-6;
  EXPECT_NEAR(collective_seconds(cluster, Collective::all_reduce, {8, 1}, 0), 6e-6, 1e-12);
  cluster.network.latency = 1e-5;
  EXPECT_NEAR(collective_seconds(cluster, Collective::all_reduce, {32, 1}, 0), 6e-6 + 4e-5, 1e-12);
  EXPECT_NEAR(collective_seconds(cluster, Collective::all_gather, {32, 1}, 0), 3e-6 + 3e-5, 1e-12);
}

// What `bench machine` writes: links for which the formula gives back the times that were measured.
TEST(CollectiveTime, links_are_found_from_timed_all_reduces) {
  Cluster cluster = machine();
  cluster.node.latency = 3e-6;
  cluster.network.latency = 2e-5;
  const auto timed = [&](int devices) {
    const auto seconds = [&](double bytes) {
      return collective_seconds(cluster, Collective::all_reduce, {devices, 1}, bytes);
    };
    return TimedAllReduce{.small_seconds = seconds(0), .large_seconds = seconds(1e8), .bytes = 1e8};
  };
  const LinkTier node = node_link(cluster, timed(8));
  EXPECT_NEAR(node.bandwidth / cluster.node.bandwidth, 1, 1e-9);
  EXPECT_NEAR(node.latency / cluster.node.latency, 1, 1e-9);
  const LinkTier network = network_link(cluster, timed(32));  // 80 GB/s a node are 10 a device
  EXPECT_NEAR(network.bandwidth / cluster.network.bandwidth, 1, 1e-9);
  EXPECT_NEAR(network.latency / cluster.network.latency, 1, 1e-9);
  EXPECT_GT(network_link(cluster, {.small_seconds = 0, .large_seconds = 1e-3, .bytes = 1e6}).latency, 0);
}

TEST(CollectiveTime, a_message_takes_the_link_of_its_axis) {
  Cluster cluster = machine();
  cluster.network.latency = 1e-5;
  EXPECT_DOUBLE_EQ(message_seconds(cluster, {4, 1}, 2e6), 2e6 / 200e9);
  EXPECT_DOUBLE_EQ(message_seconds(cluster, {4, 8}, 2e6), 1e-5 + 2e6 / 10e9);
  EXPECT_TRUE(crosses_nodes(cluster, {16, 1}));
  EXPECT_FALSE(crosses_nodes(cluster, {2, 4}));
}

// The bus bandwidths that the presets start from, measured [stas00/ml-engineering, network/README.md]: 8 x A100 232 to
// 235 GB/s, 8 x H200 without NVLS 365.6 GB/s, 8 x B200 without NVLS 682 GB/s.
TEST(CollectiveTime, presets_reach_the_measured_bus_bandwidth_of_large_payloads) {
  const double payload = 8e9;
  const auto bus = [&](const char* name) {
    const double seconds = collective_seconds(cluster_preset(name), Collective::all_reduce, {8, 1}, payload);
    return payload * 2 * 7 / 8 / seconds / 1e9;
  };
  EXPECT_NEAR(bus("a100-80"), 233, 5);
  EXPECT_NEAR(bus("h200"), 365.6, 6);
  EXPECT_NEAR(bus("b200"), 682.2, 12);
}

}  // namespace
