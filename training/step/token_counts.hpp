// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "io/tokens/token_loader.hpp"
#include "models/model_config.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Targets that count.
Index count_valid(const Batch& batch);

/// Of each of them in a mean; 0 without any: no gradient and no loss, rather than a NaN.
inline double token_weight(Index valid_tokens) {
  return valid_tokens == 0 ? 0 : 1.0 / static_cast<double>(valid_tokens);
}

/// @throws Error (data) where none of the tokens that a loss was to be the mean of counts
void require_valid(Index valid_tokens);

/// What the batches of all replicas hold together.
struct TokenCounts {
  Index valid_tokens = 0;      ///< targets that count in the loss
  double attention_share = 1;  ///< keys that queries see, over those of joined documents: the work of attention
};

/// Looks at targets and positions on the host. Collective over the replicas.
TokenCounts count_tokens(const std::vector<Batch>& batches, const ModelConfig& model, const Communicator& replicas);

}  // namespace espalier
