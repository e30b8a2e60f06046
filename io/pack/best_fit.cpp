// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/best_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.hpp"

namespace espalier {

std::vector<std::vector<Index>> best_fit_rows(std::span<const Index> lengths, Index capacity) {
  std::vector<Index> order(lengths.size());
  std::iota(order.begin(), order.end(), Index{0});
  const auto length_of = [&](Index document) { return lengths[static_cast<std::size_t>(document)]; };
  std::ranges::stable_sort(order, std::ranges::greater(), length_of);

  std::vector<std::vector<Index>> rows;
  std::map<Index, std::vector<std::size_t>> by_free_tokens;  // rows by how many tokens they have free
  for (const Index document : order) {
    const Index length = length_of(document);
    ESPALIER_ASSERT(length > 0 && length <= capacity, fmt::format("{} tokens fit no row of {}", length, capacity));
    const auto best = by_free_tokens.lower_bound(length);
    std::size_t row = rows.size();
    Index free_tokens = capacity;
    if (best == by_free_tokens.end()) {
      rows.emplace_back();
    } else {
      free_tokens = best->first;
      row = best->second.back();
      best->second.pop_back();
      if (best->second.empty())
        by_free_tokens.erase(best);
    }
    rows[row].push_back(document);
    if (free_tokens > length)
      by_free_tokens[free_tokens - length].push_back(row);
  }
  return rows;
}

}  // namespace espalier
