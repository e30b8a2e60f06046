// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/nearest_sizes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace espalier {

std::vector<Index> nearest_sizes(Index wanted, Index most, const std::function<bool(Index)>& possible, Index farthest) {
  std::vector<Index> found;
  for (Index size = std::min(wanted - 1, most); size >= std::max<Index>(1, wanted - farthest) && found.empty(); --size)
    if (possible(size))
      found.push_back(size);
  for (Index size = wanted + 1; size <= std::min(most, wanted + farthest); ++size)
    if (possible(size)) {
      found.push_back(size);
      break;
    }
  return found;
}

std::vector<Index> nearest_multiples(Index wanted, Index step) {
  const Index below = wanted / step * step;
  if (below == 0)
    return {step};
  return {below, below + step};
}

std::string nearest_text(const std::vector<Index>& sizes) {
  return sizes.empty() ? "" : fmt::format(" (nearest: {})", fmt::join(sizes, " or "));
}

}  // namespace espalier
