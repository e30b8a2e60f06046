// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// How the next token is drawn from its logits.
struct SamplingConfig {
  double temperature = 1;  ///< divides the logits; 0: always the most likely token
  Index top_k = 0;         ///< only the k most likely tokens; 0: all
  double top_p = 1;        ///< only the most likely tokens that together reach this probability (Holtzman et al., 2020)
};

/// The token that the uniform random number u in (0, 1) stands for.
TokenId sample_token(const std::vector<double>& logits, const SamplingConfig& config, double u);

}  // namespace espalier
