// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "core/value_range.hpp"

namespace espalier {

inline constexpr FloatRange temperature_range{0, 1000};

/// How the next token is drawn from its logits. The rules are applied in this order.
struct SamplingConfig {
  double repetition_penalty = 1;  ///< makes tokens of the text so far less likely (penalize_repetition()); 1: does not
  double temperature = 1;         ///< divides the logits; 0: always the most likely token
  Index top_k = 0;                ///< only the k most likely tokens; 0: all
  double top_p = 1;  ///< of those, only the most likely that together reach this share (nucleus; Holtzman et al., 2020)
};

/// A token that may be drawn, and how likely that is.
struct Candidate {
  TokenId token = 0;
  double probability = 0;
};

/// The repetition penalty of CTRL (Keskar et al., 2019), as Hugging Face transformers applies it: positive logits of
/// these tokens are divided by the penalty, negative ones multiplied, each once, however often its token stands there.
/// Tokens beyond the logits are passed over. @pre penalty > 0
void penalize_repetition(std::vector<double>& logits /* (V) */, std::span<const TokenId> tokens, double penalty);

/// The tokens that the rules leave, at least one, sorted by falling probability and then by id. Their probabilities add
/// up to 1. `text` holds the tokens so far. @pre the logits (V) are finite
/// @param share of the probability that is enough: tokens beyond it may be left out
std::vector<Candidate> candidates(std::vector<double> logits, std::span<const TokenId> text,
                                  const SamplingConfig& config, double share = 1);

/// The one of these that the uniform random number u in (0, 1) stands for.
TokenId sample(const std::vector<Candidate>& candidates, double u);

}  // namespace espalier
