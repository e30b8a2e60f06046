// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/file.hpp"
#include "planning/accelerator.hpp"

namespace espalier {

/// One level of the network, as a device sees it.
struct LinkTier {
  double bandwidth = 0;  ///< bytes per second and direction that collectives of large payloads reach on each device
  double latency = 0;    ///< seconds of one step of a collective, or of one message
  /// Bytes per second of one device while the others are silent; 0: the same. Only Implementation::one_ring reads it.
  double alone = 0;
};

inline constexpr double least_latency = 1e-9;          ///< seconds, of a link in a cluster file
inline constexpr int most_devices = 1 << 24;           ///< of a machine
inline constexpr int most_devices_per_node = 1 << 16;  ///< that one link joins

/// Equal nodes with equal devices; devices of a node are joined by `node`, nodes by `network`.
struct Cluster {
  std::string name;
  Accelerator device;
  int num_nodes = 1;
  int devices_per_node = 8;
  int node_capacity = 0;  ///< devices of a node where with_devices() takes fewer of each; 0: devices_per_node
  LinkTier node;
  LinkTier network;                  ///< each device's share of the network cards of its node
  Index reserved_bytes = 0;          ///< of a device: context, library scratch, fragmentation
  double price_per_device_hour = 0;  ///< in `currency`; 0: unknown
  std::string currency;
  double device_watts = 0;  ///< a device's share of what a node draws while it trains; 0: unknown
  int num_devices() const { return num_nodes * devices_per_node; }  ///< @pre problems() has none
};

/// "512 devices: 64 nodes of 8 a100-40 with 40.00 GiB each".
std::string machine_text(const Cluster& cluster, int num_devices);

/// Broken rules, one sentence each: what no machine can be.
std::vector<std::string> problems(const Cluster& cluster);

/// "a100-80", "a100-80:16" (16 nodes), "a100-80:64x4" (64 nodes of 4 devices). @throws Error (usage).
Cluster cluster_preset(const std::string& text);
std::vector<std::string> cluster_preset_names();

/// The nodes that `num_devices` need. If the same power of two on each node makes as many, each node gives that: 128
/// devices of nodes of 72 are two nodes of 64, as jobs are placed. Else whole nodes are taken, and some devices stay
/// idle. A later call may use the devices that are left idle on a node.
Cluster with_devices(Cluster cluster, int num_devices);

/// A TOML file, docs/planner.md has the keys. @throws Error (usage) that lists every problem with its position.
Cluster read_cluster(const Path& file);
Cluster parse_cluster(const std::string& text, const std::string& name);

/// As such a file; reads back equal to four digits.
std::string to_toml(const Cluster& cluster);

/// A preset, or a file where the text ends with ".toml".
Cluster cluster_from(const std::string& text);

}  // namespace espalier
