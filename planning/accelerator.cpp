// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/accelerator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/rank_memory.hpp"

namespace espalier {
namespace {

constexpr double tile = 128;  // rows and columns of a result that one processor makes at a time

}  // namespace

std::optional<Precision> parse_priced_precision(std::string_view name) {
  const std::optional<Precision> precision = parse_precision(name);
  return precision && is_priced(*precision) ? precision : std::nullopt;
}

int activation_bytes(Precision precision) { return static_cast<int>(size_of(types_of_precision(precision).compute)); }

std::string unfitted_text(const Accelerator& device) {
  return device.unfitted.empty() ? ""
                                 : fmt::format("Nothing was fitted to training runs on {}: its efficiency is {}.",
                                               device.name, device.unfitted);
}

std::vector<std::string> priced_precision_names() {
  std::vector<std::string> names;
  for (const Precision each : all_precisions())
    if (is_priced(each))
      names.emplace_back(to_string(each));
  return names;
}

std::vector<std::string> precision_names(const Accelerator& device) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < num_priced_precisions; ++i)
    if (device.has(static_cast<Precision>(i)))
      found.emplace_back(to_string(static_cast<Precision>(i)));
  return found;
}

double product_seconds(const Accelerator& device, Precision precision, double m, double n, double k, double batch) {
  const MatrixRate& rate = device.rate(precision);
  const double tiles = batch * std::ceil(m / tile) * std::ceil(n / tile);
  const double filled = tiles / (tiles + rate.fill_waves * device.processors);
  const double share = rate.matmul_efficiency * k / (k + rate.half_depth) * filled;
  const double arithmetic = batch * 2 * m * n * k / (rate.peak_flops * share);
  const double element = precision == Precision::fp8 ? 1 : activation_bytes(precision);
  const double bytes = batch * (element * (m * k + k * n) + activation_bytes(precision) * m * n);
  return std::max(arithmetic, traffic_seconds(device, bytes));
}

double traffic_seconds(const Accelerator& device, double bytes) {
  return bytes / (device.memory_bandwidth * device.memory_efficiency);
}

}  // namespace espalier
