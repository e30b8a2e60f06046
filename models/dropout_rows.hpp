// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/ops/dropout.hpp"
#include "models/block_shape.hpp"

namespace espalier {

/// Dropout at a place in the model, of rows that are counted by positions and then by samples.
/// @param sequence_rows of a sample
/// @param first_row of this rank, in its first sample
inline Dropout dropout_of_rows(const DropoutPlace& place, double rate, std::string_view name, Index sequence_rows,
                               Index first_row) {
  return {place.is_training ? rate : 0, RandomStream(place.seed, name).key(),
          static_cast<std::uint64_t>(place.first_sample * sequence_rows + first_row)};
}

}  // namespace espalier
