// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// The positive multiples of `unit` next to `value`, below (or equal) and above: one or two.
inline std::vector<Index> nearest_multiples(Index value, Index unit) {
  const Index below = value / unit * unit;
  if (below == 0)
    return {unit};
  return {below, below + unit};
}

/// Of the sizes from 1 to `most` that are possible, the nearest below `wanted` and the nearest above it. In each
/// direction `farthest` sizes are looked at.
template <class Possible>
std::vector<Index> nearest_sizes(Index wanted, Index most, const Possible& possible, Index farthest = 4096) {
  std::vector<Index> found;
  const Index below = std::min(wanted - 1, most);
  for (Index size = below; size > std::max<Index>(0, below - farthest) && found.empty(); --size)
    if (possible(size))
      found.push_back(size);
  for (Index size = wanted + 1; size <= std::min(most, wanted + farthest); ++size)
    if (possible(size)) {
      found.push_back(size);
      break;
    }
  return found;
}

}  // namespace espalier
