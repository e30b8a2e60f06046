// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/model_config.hpp"

namespace espalier {

/// Bytes in which one of `size` tensor ranks receives what others add to its sums: of the residual stream of N tokens,
/// and of the two statistics of the loss, of so many rows that the head takes at a time.
struct TensorScratch {
  int size = 1;
  bool sequence_parallel = false;
  Index tokens = 0;      ///< N
  Index logit_rows = 0;  ///< 0: without a head
  Index compute_bytes = 4;
  Index state_bytes = 4;

  Index bytes(const ModelConfig& model) const;
};

}  // namespace espalier
