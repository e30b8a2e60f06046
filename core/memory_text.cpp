// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/memory_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string_view>
#include <vector>

#include "core/memory_ledger.hpp"

namespace espalier {
namespace {

// `round` makes a whole number of the last decimals that are shown.
std::string size_text(std::size_t bytes, double (*round)(double)) {
  auto value = static_cast<double>(bytes);
  std::string_view unit = "B";
  for (const std::string_view larger : {"KiB", "MiB", "GiB", "TiB", "PiB"}) {
    if (value < 1024)
      break;
    value /= 1024;
    unit = larger;
  }
  const int decimals = unit == "B" ? 0 : unit == "GiB" ? 2 : 1;
  const double scale = std::pow(10.0, decimals);
  return fmt::format("{:.{}f} {}", round(value * scale) / scale, decimals, unit);
}

}  // namespace

std::string bytes_text(std::size_t bytes) { return size_text(bytes, std::nearbyint); }

std::string budget_text(std::size_t bytes) { return size_text(bytes, std::ceil); }

std::string biggest_categories(const MemoryByCategory& memory) {
  std::vector<std::size_t> order(num_categories);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::ranges::greater(), [&](std::size_t category) { return memory.bytes[category]; });
  std::string text;
  for (std::size_t i = 0; i < 3 && memory.bytes[order[i]] > 0; ++i)
    text += fmt::format("{}{} {}", i ? ", " : "", to_string(static_cast<Category>(order[i])),
                        bytes_text(memory.bytes[order[i]]));
  return text;
}

}  // namespace espalier
