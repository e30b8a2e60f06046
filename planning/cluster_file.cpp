// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.hpp"
#include "io/config/toml_config.hpp"
#include "io/input_limits.hpp"
#include "io/units.hpp"
#include "planning/cluster.hpp"

namespace espalier {
namespace {

// What no machine of this decade is beyond: a value outside is a mistake of units.
struct Sane {
  double least;
  double most;
};

// Ten times what the fastest parts of today have, in round numbers.
constexpr Sane sane_memory{0x1p26, 0x1p44};
constexpr Sane sane_memory_bandwidth{1e9, 1e14};
constexpr Sane sane_node_bandwidth{1e6, 1e13};
constexpr Sane sane_network_bandwidth{1e6, 1e12};
constexpr Sane sane_latency{least_latency, 0.1};
constexpr Sane sane_watts{1, 1e5};
constexpr double most_price = 1e6;  // of an hour of a device, in any currency

Sane sane_peak(Precision precision) {
  switch (precision) {
    case Precision::fp32: return {1e9, 5e14};
    case Precision::tf32: return {1e9, 1e16};
    case Precision::fp16:
    case Precision::bf16: return {1e9, 2.5e16};
    case Precision::fp8: return {1e9, 5e16};
    case Precision::fp64: break;  // has no rate
  }
  return {1e9, 5e16};
}

// Units are a factor of 1000 apart, and what replaces a preset's value is within a factor of a hundred or so: a value
// that is about a thousand or a million times the preset's, or that part of it, is a mistake of units as well.
bool is_units_apart(double times) {
  constexpr double about = 3;
  const double decades = std::log10(times);
  const double thousands = std::round(decades / 3);
  return thousands != 0 && std::abs(decades - 3 * thousands) < std::log10(about);
}

// The value that was meant, if another unit brings it into the range; nothing for one that none does.
std::string likely_mistake(Quantity quantity, double value, Sane sane) {
  if (value <= 0)
    return "";
  const double step = value > sane.most ? 1e-3 : 1e3;
  const char* const bits = quantity == Quantity::bytes_per_second ? " (GB/s are bytes, Gb/s bits)" : "";
  const double first = quantity == Quantity::seconds ? step * step : step;  // "s" for "us" more often than for "ms"
  for (const double meant : {value * first, value * step, value * step * step})
    if (meant >= sane.least && meant <= sane.most)
      return fmt::format(": did you mean {}?{}", quantity_text(quantity, meant), bits);
  return fmt::format(": is the unit right?{}", bits);
}

constexpr FloatRange efficiency{.min = 1e-3, .max = 1};

// A rule of several keys that is broken, reported at one of them.
struct ClusterRule {
  std::string section;
  std::string key;
  std::string what;
};

std::vector<ClusterRule> rules_broken_by(const Cluster& cluster) {
  std::vector<ClusterRule> found;
  const auto require = [&](bool given, const char* section, const char* key, Quantity quantity) {
    if (!given)
      found.push_back(
          {section, key, fmt::format("is missing: give {}, or start from a preset", quantity_examples(quantity))});
  };
  const auto require_link = [&](const char* section, const LinkTier& link) {
    require(link.bandwidth > 0, section, "bandwidth", Quantity::bytes_per_second);
    require(link.latency > 0, section, "latency", Quantity::seconds);
  };
  if (const Index devices = Index{cluster.num_nodes} * cluster.devices_per_node; devices > most_devices)
    found.push_back({"cluster", "nodes",
                     fmt::format("{} nodes of {} are {} devices: at most {}", cluster.num_nodes,
                                 cluster.devices_per_node, devices, most_devices)});
  if (cluster.devices_per_node > most_devices_per_node)
    found.push_back(
        {"cluster", "devices_per_node",
         fmt::format("{} is more than a node can have: at most {}", cluster.devices_per_node, most_devices_per_node)});
  const Accelerator& device = cluster.device;
  require(device.memory_bytes > 0, "device", "memory", Quantity::bytes);
  require(device.memory_bandwidth > 0, "device", "memory_bandwidth", Quantity::bytes_per_second);
  if (cluster.devices_per_node > 1)
    require_link("node_link", cluster.node);
  if (cluster.num_nodes > 1)
    require_link("network_link", cluster.network);
  bool computes = false;
  for (std::size_t i = 0; i < num_priced_precisions; ++i) {
    const MatrixRate& rate = device.rates[i];
    const char* const section = to_string(static_cast<Precision>(i));
    computes = computes || rate.peak_flops > 0;
    const bool attends = attention_precision(static_cast<Precision>(i)) == static_cast<Precision>(i);
    for (const auto& [key, value] : {std::pair("matmul_efficiency", rate.matmul_efficiency),
                                     {"attention_efficiency", attends ? rate.attention_efficiency : 1}})
      if (rate.peak_flops > 0 && value <= 0)
        found.push_back({section, key,
                         "is missing: with a peak or a gemm_rate, give the share of it that is reached, such as 0.5"});
    if (rate.tuned_attention_efficiency > 0 && rate.tuned_attention_efficiency < rate.attention_efficiency)
      found.push_back(
          {section, "tuned_attention_efficiency",
           fmt::format("{:g} is less than attention_efficiency, {:g}: kernels for this device cannot be slower",
                       rate.tuned_attention_efficiency, rate.attention_efficiency)});
  }
  if (!computes)
    found.push_back({"bf16", "peak",
                     "is missing, and so is that of every other precision: give one, as \"312 TFLOP/s\", "
                     "or start from a preset"});
  if (cluster.reserved_bytes >= device.memory_bytes && device.memory_bytes > 0)
    found.push_back({"cluster", "reserved_memory",
                     fmt::format("{} leaves nothing of a device's {}",
                                 quantity_text(Quantity::bytes, static_cast<double>(cluster.reserved_bytes)),
                                 quantity_text(Quantity::bytes, static_cast<double>(device.memory_bytes)))});
  return found;
}

// Every key of a cluster file, for its reader and its writer.
template <class ClusterType, class Visitor>
void visit_cluster(ClusterType& cluster, Visitor& v) {
  const auto link = [&](const char* section, auto& tier, Sane bandwidth) {
    v.section(section);
    v.quantity("bandwidth", Quantity::bytes_per_second, tier.bandwidth, bandwidth);
    v.quantity("latency", Quantity::seconds, tier.latency, sane_latency);
  };
  v.section("cluster");
  v.text("name", cluster.name);
  v.count("nodes", cluster.num_nodes, most_devices);
  v.count("devices_per_node", cluster.devices_per_node, most_devices_per_node);
  v.bytes("reserved_memory", cluster.reserved_bytes, {0, 0x1p40});
  v.price("price_per_device_hour", cluster);
  v.quantity("device_power", Quantity::watts, cluster.device_watts, sane_watts);
  v.section("device");
  auto& device = cluster.device;
  v.text("name", device.name);
  v.bytes("memory", device.memory_bytes, sane_memory);
  v.quantity("memory_bandwidth", Quantity::bytes_per_second, device.memory_bandwidth, sane_memory_bandwidth);
  v.efficiency("memory_efficiency", "memory_share", device.memory_efficiency, efficiency);
  v.count("processors", device.processors, 1 << 24);
  v.quantity("kernel_start", Quantity::seconds, device.kernel_seconds, {0, 1e-2});
  v.quantity("step_overhead", Quantity::seconds, device.step_seconds, {0, 100});
  v.boolean("moves_messages", device.moves_messages);
  v.number("error_share", device.error_share, {.min = 0, .max = 1});
  for (std::size_t i = 0; i < num_priced_precisions; ++i) {
    const auto precision = static_cast<Precision>(i);
    auto& rate = device.rates[i];
    v.section(to_string(precision));
    v.rate(rate, sane_peak(precision));
    v.efficiency("matmul_efficiency", "product_share", rate.matmul_efficiency, efficiency);
    v.number("half_depth", rate.half_depth, {.min = 0, .max = 1e6});
    v.number("fill_waves", rate.fill_waves, {.min = 0, .max = 100});
    if (attention_precision(precision) != precision)
      continue;
    v.efficiency("attention_efficiency", "attention_share", rate.attention_efficiency, efficiency);
    v.efficiency("tuned_attention_efficiency", "tuned_attention_share", rate.tuned_attention_efficiency,
                 {.min = 0, .max = 1});
    v.number("attention_half_length", rate.attention_half_length, {.min = 0, .max = 1e6});
  }
  link("node_link", cluster.node, sane_node_bandwidth);
  link("network_link", cluster.network, sane_network_bandwidth);
}

class ClusterReader {
 public:
  ClusterReader(const std::string& text, const std::string& name)
      : reader_(
            text, name, {},
            {.name = "cluster file", .help = "docs/planner.md explains every key of a cluster file, with its unit"}) {}

  Cluster read(const std::string& file_name) {
    std::string preset;
    const bool given = reader_.read("cluster", "preset", preset, cluster_preset_names());
    Cluster cluster = given && !preset.empty() ? cluster_preset(preset) : Cluster{};
    cluster.name = file_name;
    Accelerator& device = cluster.device;
    std::string device_preset;
    if (reader_.read("device", "preset", device_preset, accelerator_preset_names()) && !device_preset.empty())
      device = accelerator_preset(device_preset);
    const bool is_own = device.name.empty();
    visit_cluster(cluster, *this);
    if (device.name.empty())
      device.name = Path(file_name).stem().string();
    if (std::ranges::any_of(device.rates, &MatrixRate::is_measured))
      device.unfitted.clear();
    else if (is_own)
      device.unfitted = "what its file says";
    reader_.finish();
    for (const ClusterRule& rule : rules_broken_by(cluster))
      reader_.problem(rule.section, rule.key, rule.what);
    reader_.finish();
    return cluster;
  }

  void section(const char* name) { section_ = name; }
  void text(const char* key, std::string& value) { reader_.read(section_, key, value); }
  void boolean(const char* key, bool& value) { reader_.read(section_, key, value); }
  void number(const char* key, double& value, FloatRange range) { reader_.read(section_, key, value, range); }

  void count(const char* key, int& value, Index most) {
    Index read = value;
    reader_.read(section_, key, read, {.min = 1, .max = most});
    value = static_cast<int>(read);
  }

  // Returns whether the key was given and holds a text.
  bool quantity(const char* key, Quantity quantity, double& value, Sane sane) {
    std::string text;
    if (!reader_.read_text(section_, key, text, quantity_examples(quantity)))
      return false;
    const std::optional<double> parsed = parse_quantity(quantity, text);
    if (!parsed)
      reader_.problem(section_, key, fmt::format("got \"{}\", wanted {}", text, quantity_examples(quantity)));
    else if (*parsed < sane.least || *parsed > sane.most)
      reader_.problem(section_, key,
                      fmt::format("got \"{}\", wanted {} to {}{}", text, quantity_text(quantity, sane.least),
                                  quantity_text(quantity, sane.most), likely_mistake(quantity, *parsed, sane)));
    else if (const double times = *parsed / value; value > 0 && sane.least > 0 && is_units_apart(times))
      reader_.problem(
          section_, key,
          fmt::format("got \"{}\", {:.4g} times {} than the preset's {}{}", text, times > 1 ? times : 1 / times,
                      times > 1 ? "more" : "less", quantity_text(quantity, value),
                      likely_mistake(quantity, *parsed, {value / 100, value * 100})));
    else
      value = *parsed;
    return true;
  }

  void bytes(const char* key, Index& value, Sane sane) {
    auto bytes = static_cast<double>(value);
    quantity(key, Quantity::bytes, bytes, sane);
    value = static_cast<Index>(bytes);
  }

  // "2.50 EUR": what follows the number is the currency.
  void price(const char* key, Cluster& cluster) {
    constexpr const char* wanted = "a price with its currency, such as \"2.50 EUR\"";
    std::string text;
    if (!reader_.read_text(section_, key, text, wanted))
      return;
    double price = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), price);
    const std::string rest = text.substr(static_cast<std::size_t>(end - text.data()));
    const std::size_t currency = rest.find_first_not_of(' ');
    if (failed != std::errc() || !(price > 0 && price <= most_price) || currency == std::string::npos)
      reader_.problem(section_, key, fmt::format("got \"{}\", wanted {}", text, wanted));
    else {
      cluster.price_per_device_hour = price;
      cluster.currency = rest.substr(currency);
    }
  }

  // Earlier versions wrote another key.
  void efficiency(const char* key, const char* earlier_key, double& value, FloatRange range) {
    if (reader_.read(section_, earlier_key, value, range) && reader_.has(section_, key))
      reader_.problem(section_, earlier_key, fmt::format("is an earlier name of {}: give one of them", key));
    reader_.read(section_, key, value, range);
  }

  // With both, the efficiencies are of the GEMM rate, and only MFU is of the peak.
  void rate(MatrixRate& rate, Sane sane) {
    const double preset_rate = rate.peak_flops;
    double peak = rate.peak();
    double gemm_rate = rate.is_measured ? rate.peak_flops : 0;
    const bool has_peak = quantity("peak", Quantity::flops_per_second, peak, sane);
    const bool has_gemm_rate = quantity("gemm_rate", Quantity::flops_per_second, gemm_rate, sane);
    rate.is_measured = has_gemm_rate || (rate.is_measured && !has_peak);
    rate.peak_flops = rate.is_measured ? gemm_rate : peak;
    rate.maker_peak = rate.is_measured ? peak : 0;
    if (has_gemm_rate && preset_rate > 0)
      rescale_efficiencies(rate, preset_rate / gemm_rate);
  }

 private:
  // A preset's efficiencies are of the peak: of the lower rate that was measured they are more, and reach the same
  // FLOP/s.
  static void rescale_efficiencies(MatrixRate& rate, double times) {
    for (double* const of_rate :
         {&rate.matmul_efficiency, &rate.attention_efficiency, &rate.tuned_attention_efficiency})
      *of_rate = std::min(1.0, *of_rate * times);
  }

  ConfigReader reader_;
  std::string section_;
};

// Leaves out what is 0, the value of a key that is not given.
class ClusterWriter {
 public:
  void section(const char* name) { section_ = name; }
  void text(const char* key, const std::string& value) { file_.write(section_, key, value); }
  void boolean(const char* key, bool value) { file_.write(section_, key, value); }
  void count(const char* key, int value, Index) { file_.write(section_, key, Index{value}); }
  void number(const char* key, double value, FloatRange) {
    if (value > 0)
      file_.write(section_, key, value);
  }
  void efficiency(const char* key, const char*, double value, FloatRange range) { number(key, value, range); }
  void quantity(const char* key, Quantity quantity, double value, Sane) {
    if (value > 0)
      file_.write(section_, key, quantity_text(quantity, value));
  }
  void bytes(const char* key, Index value, Sane sane) {
    quantity(key, Quantity::bytes, static_cast<double>(value), sane);
  }
  void price(const char* key, const Cluster& cluster) {
    if (cluster.price_per_device_hour > 0)
      file_.write(section_, key, fmt::format("{:.10g} {}", cluster.price_per_device_hour, cluster.currency));
  }
  void rate(const MatrixRate& rate, Sane sane) {
    quantity("peak", Quantity::flops_per_second, rate.peak(), sane);
    quantity("gemm_rate", Quantity::flops_per_second, rate.is_measured ? rate.peak_flops : 0, sane);
  }
  std::string result() const { return file_.text(); }

 private:
  ConfigWriter file_;
  std::string section_;
};

}  // namespace

std::vector<std::string> problems(const Cluster& cluster) {
  std::vector<std::string> found;
  for (const ClusterRule& rule : rules_broken_by(cluster))
    found.push_back(fmt::format("{}.{} {}", rule.section, rule.key, rule.what));
  return found;
}

Cluster parse_cluster(const std::string& text, const std::string& name) { return ClusterReader(text, name).read(name); }

std::string to_toml(const Cluster& cluster) {
  ClusterWriter writer;
  visit_cluster(cluster, writer);
  return writer.result();
}

Cluster read_cluster(const Path& file) {
  return parse_cluster(read_file(file, ExitCode::usage, LargestFile::config), file.string());
}

}  // namespace espalier
