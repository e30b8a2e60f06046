// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "io/tokens/token_loader.hpp"
#include "models/model_config.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Number of targets that count in the loss.
Index count_valid(const Batch& batch);

/// The weight of each valid token in a mean; 0 without any: no gradient and no loss, rather than NaN.
inline double token_weight(Index valid_tokens) {
  return valid_tokens == 0 ? 0 : 1.0 / static_cast<double>(valid_tokens);
}

/// @throws Error (data) if there is no valid token to compute a mean loss of
void require_valid(Index valid_tokens);

/// Counts over the batches of all replicas.
struct TokenCounts {
  Index valid_tokens = 0;      ///< targets that count in the loss
  double attention_share = 1;  ///< work of attention over that of joined documents, by the keys that queries see
};

/// Counts targets and positions on the host. Collective over the replicas.
TokenCounts count_tokens(const std::vector<Batch>& batches, const ModelConfig& model, const Communicator& replicas);

}  // namespace espalier
