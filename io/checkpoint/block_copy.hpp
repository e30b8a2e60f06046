// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// Part of a tensor: `count` elements from `start` on, in each dimension.
struct Box {
  std::vector<Index> start;
  std::vector<Index> count;
};

/// Do two parts of one tensor share an element? Of a Box, or whatever has start and count.
template <class A, class B>
bool overlaps(const A& a, const B& b) {
  for (std::size_t d = 0; d < a.start.size(); ++d)
    if (a.start[d] + a.count[d] <= b.start[d] || b.start[d] + b.count[d] <= a.start[d])
      return false;
  return true;
}

/// Copies what two boxes of one tensor share from a row-major array of the one to that of the other,
/// converting.
void copy_overlap(const Box& source_box, ScalarType source_type, const void* source, const Box& target_box,
                  ScalarType target_type, void* target);

/// Is each of the values a finite number, and at least `least`?
bool is_finite(ScalarType type, const void* values, Index size, double least = -std::numeric_limits<double>::max());

}  // namespace espalier
