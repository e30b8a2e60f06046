// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/flat_sharding.hpp"

#include <algorithm>

namespace espalier {
std::vector<IndexRange> FlatSharding::held(Index flat_size) const {
  std::vector<IndexRange> result;
  Index begin = 0;
  const auto keep = [&](IndexRange range) {
    if (range.size() > 0)
      result.push_back(range);
  };
  for (const IndexRange& unit : units) {
    keep({begin, unit.begin});
    begin = unit.end;
  }
  keep({begin, flat_size});
  for (const IndexRange& unit : units)
    for (const IndexRange& range : owned)
      keep(intersection(unit, range));
  return result;
}

Index FlatSharding::buffer_size() const {
  Index largest = 0;
  for (const IndexRange& unit : units)
    largest = std::max(largest, unit.size());
  return (largest + Segment::alignment - 1) / Segment::alignment * Segment::alignment;
}

}  // namespace espalier
