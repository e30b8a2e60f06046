// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/tensor_scratch.hpp"

#include <algorithm>

#include "parallel/collectives/collective_traffic.hpp"

namespace espalier {

Index TensorScratch::bytes(const ModelConfig& model) const {
  if (size == 1)
    return 0;
  const Index stream = tokens * model.hidden_size;
  Index most = sequence_parallel ? reduce_scatter_scratch(stream / size, compute_bytes, size)
                                 : all_reduce_scratch(stream, compute_bytes, size);
  if (logit_rows > 0)
    for (const Index rows : {logit_rows, tokens % logit_rows})  // of the last part of them, too
      for (const Index count : {rows, 2 * rows})
        most = std::max(most, all_reduce_scratch(count, state_bytes, size));
  return most;
}

}  // namespace espalier
