// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/parameter_spec.hpp"

namespace espalier::test {

/// Positions (B*T) of documents of these lengths, one after the other, again and again; the end of a row cuts what is
/// left of one.
inline std::vector<int> document_positions(Index batch, Index length, const std::vector<Index>& lengths) {
  std::vector<int> positions;
  std::size_t document = 0;
  for (Index b = 0; b < batch; ++b)
    for (Index start = 0; start < length; ++document)
      for (Index t = 0; t < lengths[document % lengths.size()] && start < length; ++t, ++start)
        positions.push_back(static_cast<int>(t));
  return positions;
}

/// The documents as runs of tokens of all rows.
inline std::vector<IndexRange> document_ranges(const std::vector<int>& positions) {
  std::vector<IndexRange> ranges;
  for (Index n = 0; n < static_cast<Index>(positions.size()); ++n)
    if (positions[static_cast<std::size_t>(n)] == 0)
      ranges.push_back({n, n + 1});
    else
      ++ranges.back().end;
  return ranges;
}

}  // namespace espalier::test
