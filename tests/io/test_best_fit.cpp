// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "io/pack/conversation_file.hpp"

namespace espalier::test {
namespace {

// Against the definition: the longest first, each into the row with the least room that it fits in.
TEST(BestFit, rows_are_those_of_the_definition) {
  for (const Index capacity : {1, 7, 64}) {
    std::vector<Index> lengths;
    for (Index i = 0; i < 300; ++i)
      lengths.push_back(1 + (i * i * 7 + i * 3) % capacity);
    const auto rows = best_fit_rows(lengths, capacity);
    std::vector<Index> order(lengths.size());
    std::iota(order.begin(), order.end(), Index{0});
    std::ranges::stable_sort(order, std::ranges::greater(),
                             [&](Index i) { return lengths[static_cast<std::size_t>(i)]; });
    std::vector<Index> room;
    for (const Index i : order) {
      const Index length = lengths[static_cast<std::size_t>(i)];
      Index* best = nullptr;
      for (Index& r : room)
        if (r >= length && (best == nullptr || r < *best))
          best = &r;
      if (best == nullptr)
        best = &room.emplace_back(capacity);
      *best -= length;
    }
    ASSERT_EQ(rows.size(), room.size()) << capacity;
    std::vector<Index> seen;
    std::vector<Index> room_of_rows;
    for (const auto& row : rows) {
      room_of_rows.push_back(capacity);
      for (const Index i : row)
        room_of_rows.back() -= lengths[static_cast<std::size_t>(i)];
      seen.insert(seen.end(), row.begin(), row.end());
    }
    std::ranges::sort(room);
    std::ranges::sort(room_of_rows);
    EXPECT_EQ(room_of_rows, room) << capacity;
    std::ranges::sort(seen);
    std::ranges::sort(order);
    EXPECT_EQ(seen, order) << capacity;
  }
  EXPECT_TRUE(best_fit_rows({}, 4).empty());
}

}  // namespace
}  // namespace espalier::test
