// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/types.hpp"

namespace espalier {

/// Part of a tensor: `count` elements from `start` on, in each dimension.
struct Box {
  std::vector<Index> start;
  std::vector<Index> count;
};

bool overlaps(const Box& a, const Box& b);

/// Copies what two boxes of one tensor share from a row-major array of the one to that of the other,
/// converting.
void copy_overlap(const Box& source_box, ScalarType source_type, const void* source, const Box& target_box,
                  ScalarType target_type, void* target);

}  // namespace espalier
