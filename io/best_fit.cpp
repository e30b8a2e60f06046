// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/best_fit.hpp"

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
  std::map<Index, std::vector<std::size_t>> by_room;  // rows by the tokens that they have room for
  for (const Index document : order) {
    const Index length = length_of(document);
    ESPALIER_ASSERT(length > 0 && length <= capacity, fmt::format("{} tokens fit no row of {}", length, capacity));
    const auto best = by_room.lower_bound(length);
    std::size_t row = rows.size();
    Index room = capacity;
    if (best == by_room.end()) {
      rows.emplace_back();
    } else {
      room = best->first;
      row = best->second.back();
      best->second.pop_back();
      if (best->second.empty())
        by_room.erase(best);
    }
    rows[row].push_back(document);
    if (room > length)
      by_room[room - length].push_back(row);
  }
  return rows;
}

}  // namespace espalier
