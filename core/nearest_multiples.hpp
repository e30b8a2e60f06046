// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace espalier
