// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"

namespace espalier {

void penalize_repetition(std::vector<double>& logits, std::span<const TokenId> tokens, double penalty) {
  ESPALIER_ASSERT(penalty > 0, "espalier::penalize_repetition: the penalty is not positive");
  if (penalty == 1)
    return;
  std::vector<bool> is_done(logits.size(), false);
  for (const TokenId token : tokens) {
    const auto at = static_cast<std::size_t>(token);
    if (token < 0 || at >= logits.size() || is_done[at])
      continue;
    is_done[at] = true;
    logits[at] = logits[at] < 0 ? logits[at] * penalty : logits[at] / penalty;
  }
}

std::vector<Candidate> candidates(std::vector<double> logits, std::span<const TokenId> text,
                                  const SamplingConfig& config) {
  ESPALIER_ASSERT(!logits.empty(), "espalier::candidates: no logits");
  penalize_repetition(logits, text, config.repetition_penalty);
  if (config.temperature <= 0)  // without sorting them all
    return {{static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()), 1.0}};
  std::vector<Candidate> kept;  // each with its logit, then with its weight in the softmax, then with its probability
  kept.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    kept.push_back({static_cast<TokenId>(i), logits[i]});
  std::ranges::stable_sort(kept, std::ranges::greater(), &Candidate::probability);
  if (config.top_k > 0 && static_cast<std::size_t>(config.top_k) < kept.size())
    kept.resize(static_cast<std::size_t>(config.top_k));

  const double largest = kept.front().probability;
  double total = 0;
  for (Candidate& candidate : kept)
    total += candidate.probability = std::exp((candidate.probability - largest) / config.temperature);
  if (config.top_p < 1) {
    double reached = 0;
    std::size_t count = 0;
    while (count < kept.size() && (count == 0 || reached < config.top_p * total))
      reached += kept[count++].probability;
    kept.resize(count);
    total = reached;
  }
  for (Candidate& candidate : kept)
    candidate.probability /= total;
  return kept;
}

TokenId sample(const std::vector<Candidate>& candidates, double u) {
  ESPALIER_ASSERT(!candidates.empty(), "espalier::sample: no candidates");
  for (const Candidate& candidate : candidates) {
    u -= candidate.probability;
    if (u < 0)
      return candidate.token;
  }
  // By rounding all of them are passed over: the last that has a probability.
  const auto last = std::ranges::find_if(candidates.rbegin(), candidates.rend(),
                                         [](const Candidate& candidate) { return candidate.probability > 0; });
  return last->token;
}

}  // namespace espalier
