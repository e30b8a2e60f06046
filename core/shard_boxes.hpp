// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/parameter_spec.hpp"

namespace espalier {

/// A box of a logical tensor whose elements lie one after another, row-major, in a rank's shard of it.
struct ShardBox {
  std::vector<Index> start;  ///< in the logical tensor
  std::vector<Index> count;
  Index offset = 0;  ///< of its first element in the shard
};

/// Cuts the local elements `local` of a parameter into such boxes, in local order: one for a whole
/// shard, at most 2 x (number of dimensions) - 1 for any other run of elements. Pure.
std::vector<ShardBox> shard_boxes(const Parameter& parameter, IndexRange local);

}  // namespace espalier
