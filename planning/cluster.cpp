// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/cluster.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "core/error.hpp"
#include "core/memory_text.hpp"
#include "io/nearest_word.hpp"
#include "io/strings.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

constexpr double giga = 1e9;

// Bandwidths inside nodes: those of large all_reduces as measured (bus bandwidth, one direction), not those of data
// sheets: NVLink 2 / 3 / 4 122 / 232 / 370 GB/s, NVLink 5 682 GB/s, MI300X 313 GB/s [nccl-tests figures of NVIDIA GTC24
// S62129 and of stas00/ml-engineering, network/README.md]. Between nodes, and latencies: what training jobs were seen
// to reach, fitted (docs/planner.md); nccl-tests alone reach 24 of a card of 25 GB/s.
const std::vector<Cluster>& clusters() {
  const auto cluster = [](const char* name, int per_node, double node_gb, double node_us, double network_gb,
                          double network_us, double alone_gb) {
    Cluster made;
    made.name = name;
    made.device = accelerator_preset(name);
    made.devices_per_node = per_node;
    made.node = {node_gb * giga, node_us * 1e-6};
    made.network = {network_gb * giga, network_us * 1e-6, alone_gb * giga};
    // Context and libraries, and a twentieth for what an allocator cannot use.
    made.reserved_bytes = 2 * gib + made.device.memory_bytes / 20;
    if (made.device.name == "mi300a")
      made.reserved_bytes += 16 * gib;  // the host's programs have no other memory
    return made;
  };
  static const std::vector<Cluster> table = {
      cluster("v100-16", 8, 122, 36, 5, 30, 8), cluster("v100", 8, 122, 36, 5, 30, 8),  // 4 x 100 Gb/s for 8 devices
      cluster("a100-40", 8, 232, 36, 13.5, 20, 18),                                     // 8 x 200 Gb/s
      // Leonardo: 4 devices, 12 links each, a card of 100 Gb/s each
      cluster("a100-64", 4, 232, 36, 6.75, 20, 9), cluster("a100-80", 8, 232, 36, 13.5, 20, 18),
      cluster("a800", 8, 155, 36, 13.5, 20, 18), cluster("h100", 8, 370, 16, 40, 10, 40),  // 8 x 400 Gb/s
      cluster("h100-hbm2e", 8, 370, 16, 40, 10, 40), cluster("h800", 8, 164, 16, 40, 10, 40),
      cluster("h200", 8, 370, 16, 40, 10, 40),
      cluster("gh200", 4, 370, 16, 20, 10, 20),  // 18 links as an H100, no switch; a card of 200 Gb/s each
      cluster("b200", 8, 682, 16, 40, 10, 40), cluster("gb200", 72, 682, 16, 40, 10, 40),  // one NVLink domain of 72
      cluster("gb300", 72, 682, 16, 80, 10, 80),                                           // cards of 800 Gb/s
      cluster("b300", 8, 682, 16, 80, 10, 80), cluster("a100-40-pcie", 8, 24, 36, 5, 20, 12),  // PCIe 4
      cluster("a100-pcie", 8, 24, 36, 5, 20, 12), cluster("h100-pcie", 8, 48, 36, 5, 20, 20),  // PCIe 5
      cluster("l40s", 8, 24, 36, 5, 20, 12),
      cluster("mi250x", 8, 100, 36, 8, 20, 12),  // Slingshot, 4 x 200 Gb/s for 8 dies
      cluster("mi250x-module", 4, 100, 36, 16, 20, 24),
      // El Capitan: 3 peers at 128 GB/s, of which the MI300X reaches 0.7 of its 448 GB/s; 200 Gb/s of Slingshot each
      cluster("mi300a", 4, 268, 20, 16, 20, 24), cluster("mi300x", 8, 313, 20, 40, 10, 40),
      cluster("mi325x", 8, 313, 20, 40, 10, 40), cluster("mi350x", 8, 380, 20, 40, 10, 40),
      cluster("mi355x", 8, 380, 20, 40, 10, 40),
      // Aurora: 6 cards of 2 tiles, 8 cards of 200 Gb/s. Between cards a tile reaches 15 GB/s, to each of 5 at once 75,
      // of which a collective is taken to reach two thirds.
      cluster("pvc-tile", 12, 50, 30, 10.5, 20, 16), cluster("pvc", 6, 100, 30, 21, 20, 25),
      cluster("gaudi2", 8, 240, 20, 30, 20, 30), cluster("gaudi3", 8, 480, 20, 60, 20, 60),
      cluster("a64fx", 1, 50, 2, 6.3, 5, 6.3),  // TofuD: one link of 6.8 GB/s
      cluster("cpu", 1, 50, 2, 12, 10, 12),     // one rank a node, 100 Gb/s
  };
  return table;
}

[[noreturn]] void throw_bad_count(const std::string& text) {
  throw Error(
      ExitCode::usage,
      {.what = "cannot read the size of a cluster",
       .got = text,
       .wanted = fmt::format("PRESET, PRESET:NODES or PRESET:NODESxDEVICES, as in a100-80:64x4: whole numbers from "
                             "1, at most {} devices in all",
                             most_devices),
       .todo = "--cluster a100-80:64x4, or the name of a TOML file that describes the machine"});
}

int positive_number(std::string_view digits, const std::string& whole) {
  int value = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failed != std::errc() || end != digits.data() + digits.size() || value < 1)
    throw_bad_count(whole);
  return value;
}

}  // namespace

std::vector<std::string> cluster_preset_names() {
  std::vector<std::string> names;
  for (const Cluster& each : clusters())
    names.push_back(each.name);
  return names;
}

Cluster cluster_preset(const std::string& text) {
  const std::string name = lower_case(text.substr(0, text.find(':')));
  const auto found = std::ranges::find(clusters(), name, &Cluster::name);
  if (found == clusters().end())
    throw Error(ExitCode::usage,
                {.what = "unknown cluster",
                 .got = text.empty() ? "nothing" : text,
                 .wanted = fmt::format("a file (*.toml) or one of {}", fmt::join(cluster_preset_names(), ", ")),
                 .todo = did_you_mean(name, cluster_preset_names(),
                                      "name one of these, or a TOML file that describes the machine "
                                      "(docs/planner.md)")});
  Cluster cluster = *found;
  if (name.size() < text.size()) {
    const std::string_view size = std::string_view(text).substr(name.size() + 1);
    const std::size_t times = size.find('x');
    cluster.num_nodes = positive_number(size.substr(0, times), text);
    if (times != std::string_view::npos)
      cluster.devices_per_node = positive_number(size.substr(times + 1), text);
  }
  return cluster;
}

Cluster with_devices(Cluster cluster, int num_devices) {
  const int size = std::max(cluster.devices_per_node, cluster.node_capacity);
  cluster.node_capacity = size;
  cluster.num_nodes = (num_devices + size - 1) / size;
  const int each = num_devices / cluster.num_nodes;
  const bool evenly = num_devices % cluster.num_nodes == 0 && std::has_single_bit(static_cast<unsigned>(each));
  cluster.devices_per_node = cluster.num_nodes == 1 || evenly ? each : size;
  return cluster;
}

std::string machine_text(const Cluster& cluster, int num_devices) {
  return fmt::format("{}: {} of {} {} with {} each", counted(num_devices, "device"), counted(cluster.num_nodes, "node"),
                     cluster.devices_per_node, cluster.device.name,
                     bytes_text(static_cast<std::size_t>(cluster.device.memory_bytes)));
}

Cluster cluster_from(const std::string& text) {
  return text.ends_with(".toml") ? read_cluster(text) : cluster_preset(text);
}

}  // namespace espalier
