// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/error.hpp"
#include "io/toml_config.hpp"
#include "planning/cluster.hpp"
#include "planning/quantity.hpp"

namespace espalier {
namespace {

// What no machine of this decade is beyond: a value outside is a mistake of units.
struct Sane {
  double least;
  double most;
};

class ClusterReader {
 public:
  ClusterReader(const std::string& text, const std::string& name) : reader_(text, name, {}) {}

  Cluster read(const std::string& file_name) {
    std::string preset;
    const bool given = reader_.read("cluster", "preset", preset, cluster_preset_names());
    Cluster cluster = given && !preset.empty() ? cluster_preset(preset) : Cluster{};
    cluster.name = file_name;
    reader_.read("cluster", "name", cluster.name);
    read_count("cluster", "nodes", cluster.num_nodes);
    read_count("cluster", "devices_per_node", cluster.devices_per_node);
    read_bytes("cluster", "reserved_memory", cluster.reserved_bytes, {0, 1e12});
    read_device(cluster.device);
    read_link("node_link", cluster.node);
    read_link("network_link", cluster.network);
    reader_.finish();
    const std::vector<std::string> broken = problems(cluster);
    for (const std::string& problem : broken)
      reader_.problem("cluster", "name", problem);
    reader_.finish();
    return cluster;
  }

 private:
  void read_count(const char* section, const char* key, int& value) {
    Index read = value;
    reader_.read(section, key, read, {.min = 1, .max = 1 << 24});
    value = static_cast<int>(read);
  }

  void read_quantity(const char* section, const char* key, Quantity quantity, double& value, Sane sane) {
    std::string text;
    if (!reader_.read(section, key, text))
      return;
    const std::optional<double> parsed = parse_quantity(quantity, text);
    if (!parsed)
      reader_.problem(section, key, fmt::format("got \"{}\", wanted {}", text, quantity_examples(quantity)));
    else if (*parsed < sane.least || *parsed > sane.most)
      reader_.problem(section, key,
                      fmt::format("got {}, wanted {} to {}: is the unit right?", quantity_text(quantity, *parsed),
                                  quantity_text(quantity, sane.least), quantity_text(quantity, sane.most)));
    else
      value = *parsed;
  }

  void read_bytes(const char* section, const char* key, Index& value, Sane sane) {
    auto bytes = static_cast<double>(value);
    read_quantity(section, key, Quantity::bytes, bytes, sane);
    value = static_cast<Index>(bytes);
  }

  void read_device(Accelerator& device) {
    std::string preset;
    if (reader_.read("device", "preset", preset, accelerator_preset_names()) && !preset.empty())
      device = accelerator_preset(preset);
    reader_.read("device", "name", device.name);
    read_bytes("device", "memory", device.memory_bytes, {64 << 20, 64e12});
    read_quantity("device", "memory_bandwidth", Quantity::bytes_per_second, device.memory_bandwidth, {1e9, 1e15});
    reader_.read("device", "memory_share", device.memory_share, {.min = 0, .max = 1, .min_open = true});
    read_count("device", "processors", device.processors);
    read_quantity("device", "kernel_start", Quantity::seconds, device.kernel_seconds, {0, 1e-2});
    read_quantity("device", "step_overhead", Quantity::seconds, device.step_seconds, {0, 100});
    reader_.read("device", "moves_messages", device.moves_messages);
    reader_.read("device", "error_share", device.error_share, {.min = 0, .max = 1});
    for (std::size_t i = 0; i < num_precisions; ++i) {
      const char* const section = to_string(static_cast<Precision>(i));
      MatrixRate& rate = device.rates[i];
      read_quantity(section, "peak", Quantity::flops_per_second, rate.peak_flops, {1e9, 1e17});
      reader_.read(section, "product_share", rate.product_share, {.min = 0, .max = 1, .min_open = true});
      reader_.read(section, "half_depth", rate.half_depth, {.min = 0, .max = 1e6});
      reader_.read(section, "fill_waves", rate.fill_waves, {.min = 0, .max = 100});
      reader_.read(section, "attention_share", rate.attention_share, {.min = 0, .max = 1, .min_open = true});
    }
  }

  void read_link(const char* section, LinkTier& link) {
    read_quantity(section, "bandwidth", Quantity::bytes_per_second, link.bandwidth, {1e6, 1e14});
    read_quantity(section, "alone", Quantity::bytes_per_second, link.alone, {1e6, 1e14});
    read_quantity(section, "latency", Quantity::seconds, link.latency, {1e-9, 1});
  }

  ConfigReader reader_;
};

}  // namespace

std::vector<std::string> problems(const Cluster& cluster) {
  std::vector<std::string> found;
  const auto missing = [&](bool absent, const char* what) {
    if (absent)
      found.push_back(fmt::format("{} is missing: give it, or a preset", what));
  };
  if (const Index devices = Index{cluster.num_nodes} * cluster.devices_per_node; devices > most_devices)
    found.push_back(fmt::format("{} nodes of {} are {} devices: at most {}", cluster.num_nodes,
                                cluster.devices_per_node, devices, most_devices));
  const Accelerator& device = cluster.device;
  missing(device.memory_bytes <= 0, "device.memory");
  missing(device.memory_bandwidth <= 0, "device.memory_bandwidth");
  missing(cluster.devices_per_node > 1 && cluster.node.bandwidth <= 0, "node_link.bandwidth");
  missing(cluster.num_nodes > 1 && cluster.network.bandwidth <= 0, "network_link.bandwidth");
  bool computes = false;
  for (std::size_t i = 0; i < num_precisions; ++i) {
    const MatrixRate& rate = device.rates[i];
    const char* const name = to_string(static_cast<Precision>(i));
    computes = computes || rate.peak_flops > 0;
    if (rate.peak_flops > 0 && (rate.product_share <= 0 || rate.attention_share <= 0))
      found.push_back(fmt::format("{} has a peak but no product_share and attention_share", name));
  }
  missing(!computes, "the peak of at least one precision ([bf16] peak = \"312 TFLOP/s\")");
  if (cluster.reserved_bytes >= device.memory_bytes && device.memory_bytes > 0)
    found.push_back(fmt::format("reserved_memory {} leaves nothing of a device's {}",
                                quantity_text(Quantity::bytes, static_cast<double>(cluster.reserved_bytes)),
                                quantity_text(Quantity::bytes, static_cast<double>(device.memory_bytes))));
  return found;
}

Cluster parse_cluster(const std::string& text, const std::string& name) { return ClusterReader(text, name).read(name); }

std::string to_toml(const Cluster& cluster) {
  ConfigWriter file;
  const auto quantity = [&](const char* section, const char* key, Quantity kind, double value) {
    file.write(section, key, quantity_text(kind, value));
  };
  const auto link = [&](const char* section, const LinkTier& tier) {
    quantity(section, "bandwidth", Quantity::bytes_per_second, tier.bandwidth);
    if (tier.alone > 0)
      quantity(section, "alone", Quantity::bytes_per_second, tier.alone);
    quantity(section, "latency", Quantity::seconds, tier.latency);
  };
  const Accelerator& device = cluster.device;
  file.write("cluster", "name", cluster.name);
  file.write("cluster", "nodes", Index{cluster.num_nodes});
  file.write("cluster", "devices_per_node", Index{cluster.devices_per_node});
  quantity("cluster", "reserved_memory", Quantity::bytes, static_cast<double>(cluster.reserved_bytes));
  file.write("device", "name", device.name);
  quantity("device", "memory", Quantity::bytes, static_cast<double>(device.memory_bytes));
  quantity("device", "memory_bandwidth", Quantity::bytes_per_second, device.memory_bandwidth);
  file.write("device", "memory_share", device.memory_share);
  file.write("device", "processors", Index{device.processors});
  quantity("device", "kernel_start", Quantity::seconds, device.kernel_seconds);
  quantity("device", "step_overhead", Quantity::seconds, device.step_seconds);
  file.write("device", "moves_messages", device.moves_messages);
  file.write("device", "error_share", device.error_share);
  for (std::size_t i = 0; i < num_precisions; ++i) {
    const MatrixRate& rate = device.rates[i];
    if (rate.peak_flops <= 0)
      continue;
    const char* const section = to_string(static_cast<Precision>(i));
    quantity(section, "peak", Quantity::flops_per_second, rate.peak_flops);
    file.write(section, "product_share", rate.product_share);
    file.write(section, "half_depth", rate.half_depth);
    file.write(section, "fill_waves", rate.fill_waves);
    file.write(section, "attention_share", rate.attention_share);
  }
  if (cluster.node.bandwidth > 0)
    link("node_link", cluster.node);
  if (cluster.network.bandwidth > 0)
    link("network_link", cluster.network);
  return file.text();
}

Cluster read_cluster(const Path& file) { return parse_cluster(read_file(file, ExitCode::usage), file.string()); }

}  // namespace espalier
