// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/memory_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "core/memory_ledger.hpp"

namespace espalier {

std::string bytes_text(std::size_t bytes) {
  auto value = static_cast<double>(bytes);
  for (const char* unit : {"B", "KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024)
      return fmt::format("{:.{}f} {}", value, *unit == 'B' ? 0 : *unit == 'G' ? 2 : 1, unit);
    value /= 1024;
  }
  return fmt::format("{:.1f} PiB", value);
}

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
