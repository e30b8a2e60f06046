// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/block_shape.hpp"
#include "models/recompute.hpp"

namespace espalier {

/// Bytes of a block's arrays for one micro-batch on a rank: what its lists say (TransformerBlock), without allocating.
struct BlockMemory {
  Index kept = 0;        ///< from forward to backward, the output included
  Index recomputed = 0;  ///< of saved arrays that are not kept
  Index read_later = 0;  ///< of those what backward_weight reads, where backward_input has computed them again
  Index gradients = 0;   ///< between the two parts of backward
  Index stream = 0;      ///< one array of the residual stream, (R, C)
  Index full = 0;        ///< the full form of it, where the tensor ranks gather it, (N, C)
  Index scores = 0;      ///< of `kept` without recomputation: the softmax denominators
  Index statistics = 0;  ///< of `kept` without recomputation: mean and rstd of the norms
};

/// @param compute type of weights and activations, which the residual stream shares
BlockMemory block_memory(const BlockShape& shape, Recompute mode, ScalarType compute);

}  // namespace espalier
