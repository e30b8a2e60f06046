// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/cost.hpp"
#include "models/declared_parameters.hpp"
#include "models/layout.hpp"
#include "planning/implementation.hpp"

namespace espalier {

/// One micro-batch on a rank of the tensor axis, the first, which has most. Context ranks share its sequences.
BlockShape block_shape(const ModelConfig& model, const Layout& layout, Index sequence_length,
                       const LogitSizes& logits = logits_on_host);

/// Whether an expert lies on one rank, not cut among tensor ranks: programs do so where ranks share the experts.
inline bool are_whole(const Experts& experts) { return experts.parallel > 1; }

/// What the first tensor rank, which has most, holds of each layer; what its layers declare.
const ParameterRecording& rank_parameters(const ModelConfig& model, const Layout& layout,
                                          const LogitSizes& logits = logits_on_host);

/// Weights of that rank, elements in memory.
struct LayerElements {
  double block = 0;
  double block_tensors = 0;  ///< in which they are
  double experts = 0;        ///< of a block
  double embedding = 0;
  double table = 0;  ///< the token embedding alone
  double head = 0;
};
LayerElements layer_elements(const ModelConfig& model, const Layout& layout, const Implementation& implementation);

}  // namespace espalier
