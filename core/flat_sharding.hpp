// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/parameter_spec.hpp"

namespace espalier {

/// How a flat array is sharded: a rank keeps its slices of the units, and everything outside of units.
struct FlatSharding {
  std::vector<IndexRange> owned;  ///< ascending
  std::vector<IndexRange> units;  ///< ascending, with equal layouts. A unit (as in FSDP) is gathered and released whole
  int buffers = 0;                ///< whole units that exist at a time: unit u lies in buffer u % buffers

  /// Kept elements: those outside of units, then the slices of the units.
  std::vector<IndexRange> held(Index flat_size) const;
  Index buffer_size() const;  ///< elements
};

}  // namespace espalier
