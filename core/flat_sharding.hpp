// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/parameter_spec.hpp"

namespace espalier {

/// What a rank keeps of a flat array that is sharded: its slices of the units, and all that is in no unit.
struct FlatSharding {
  std::vector<IndexRange> owned;  ///< ascending
  std::vector<IndexRange> units;  ///< ascending; of equal layout. A unit is gathered and released as a whole.
  int buffers = 0;                ///< whole units that exist at a time: unit u lies in buffer u % buffers

  /// Kept elements: what is in no unit, then the slices of the units.
  std::vector<IndexRange> held(Index flat_size) const;
  Index buffer_size() const;  ///< elements
};

}  // namespace espalier
