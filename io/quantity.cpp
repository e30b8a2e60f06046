// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/quantity.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace espalier {
namespace {

using Unit = std::pair<std::string_view, double>;

const std::vector<Unit>& units_of(Quantity quantity) {
  static const std::vector<Unit> bytes{{"B", 1},        {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},
                                       {"GB", 1e9},     {"TB", 1e12},    {"PB", 1e15},    {"KiB", 0x1p10},
                                       {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"PiB", 0x1p50}};
  static const std::vector<Unit> bandwidth{
      {"B/s", 1},         {"MB/s", 1e6},      {"GB/s", 1e9},      {"TB/s", 1e12},    {"PB/s", 1e15},
      {"MiB/s", 0x1p20},  {"GiB/s", 0x1p30},  {"TiB/s", 0x1p40},  {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8},
      {"Tb/s", 1e12 / 8}, {"Pb/s", 1e15 / 8}, {"Gbit/s", 1e9 / 8}};
  static const std::vector<Unit> flops{{"FLOP/s", 1},     {"MFLOP/s", 1e6},  {"GFLOP/s", 1e9},
                                       {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}, {"EFLOP/s", 1e18},
                                       {"GFLOPS", 1e9},   {"TFLOPS", 1e12},  {"PFLOPS", 1e15}};
  static const std::vector<Unit> seconds{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}};
  static const std::vector<Unit> watts{{"W", 1}, {"kW", 1e3}, {"MW", 1e6}};
  switch (quantity) {
    case Quantity::bytes: return bytes;
    case Quantity::bytes_per_second: return bandwidth;
    case Quantity::flops_per_second: return flops;
    case Quantity::seconds: return seconds;
    case Quantity::watts: return watts;
  }
  return bytes;
}

std::string in_unit(double value, std::initializer_list<Unit> units) {
  const Unit* chosen = units.begin();
  for (const Unit& unit : units)
    if (value >= unit.second)
      chosen = &unit;
  return fmt::format("{:.4g} {}", value / chosen->second, chosen->first);
}

}  // namespace

std::optional<double> parse_quantity(Quantity quantity, std::string_view text) {
  std::size_t used = 0;
  double number = 0;
  try {
    number = std::stod(std::string(text), &used);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  if (!std::isfinite(number))
    return std::nullopt;
  std::string_view unit = text.substr(used);
  while (unit.starts_with(' '))
    unit.remove_prefix(1);
  for (const auto& [name, factor] : units_of(quantity))
    if (unit == name)
      return number * factor;
  return std::nullopt;
}

std::string quantity_examples(Quantity quantity) {
  switch (quantity) {
    case Quantity::bytes: return "bytes with a unit, as \"80 GiB\" or \"80 GB\"";
    case Quantity::bytes_per_second: return "a rate with its unit, as \"25 GB/s\" (bytes) or \"200 Gb/s\" (bits)";
    case Quantity::flops_per_second: return "a rate with its unit, as \"312 TFLOP/s\"";
    case Quantity::seconds: return "a time with its unit, as \"5 us\" or \"0.2 ms\"";
    case Quantity::watts: return "a power with its unit, as \"1200 W\"";
  }
  return {};
}

std::string quantity_text(Quantity quantity, double value) {
  switch (quantity) {
    case Quantity::bytes:
      return in_unit(value, {{"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}});
    case Quantity::bytes_per_second: return in_unit(value, {{"B/s", 1}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}});
    case Quantity::flops_per_second:
      return in_unit(value, {{"FLOP/s", 1}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}});
    case Quantity::seconds: return in_unit(value, {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}});
    case Quantity::watts: return in_unit(value, {{"W", 1}, {"kW", 1e3}, {"MW", 1e6}});
  }
  return {};
}

}  // namespace espalier
