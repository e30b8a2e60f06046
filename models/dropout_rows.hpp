// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/ops/dropout.hpp"
#include "models/block_shape.hpp"

namespace espalier {

/// Dropout in one layer of the model. The number of a row is sample * sequence_rows + its row in the sample.
/// @param sequence_rows rows of one sample
/// @param first_row where the rows of this rank begin in the micro-batch
inline Dropout dropout_of_rows(const DropoutContext& context, double rate, std::string_view name, Index sequence_rows,
                               Index first_row) {
  if (!context.is_training || rate == 0)
    return {};
  return {rate, RandomStream(context.seed, name).key(),
          static_cast<std::uint64_t>(context.first_sample * sequence_rows + first_row)};
}

}  // namespace espalier
