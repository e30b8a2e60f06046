// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/model_config.hpp"

namespace espalier {

/// The receive buffer of one of `size` tensor ranks for sums: of the residual stream of N tokens, and of the loss, two
/// for each row that the head processes at a time.
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
