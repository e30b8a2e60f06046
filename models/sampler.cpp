// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/sampler.hpp"

#include <algorithm>
#include <cmath>

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
                                  const SamplingConfig& config, double share) {
  ESPALIER_ASSERT(!logits.empty(), "espalier::candidates: no logits");
  penalize_repetition(logits, text, config.repetition_penalty);
  if (config.temperature <= 0)
    return {{static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()), 1.0}};
  std::vector<Candidate> left;  // each with its logit
  left.reserve(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    left.push_back({static_cast<TokenId>(i), logits[i]});
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.probability > b.probability || (a.probability == b.probability && a.token < b.token);
  };
  if (config.top_k > 0 && config.top_k < std::ssize(left)) {
    std::ranges::nth_element(left, left.begin() + config.top_k, likelier);
    left.resize(static_cast<std::size_t>(config.top_k));
  }

  const double largest = std::ranges::max(left, {}, &Candidate::probability).probability;
  const auto weight = [&](const Candidate& candidate) {  // in the softmax
    return std::exp((candidate.probability - largest) / config.temperature);
  };
  double total = 0;
  for (const Candidate& candidate : left)
    total += weight(candidate);
  const double wanted = config.top_p < 1 ? config.top_p * total : share < 1 ? share * total : HUGE_VAL;
  // Of a heap the likeliest come one by one: most of the vocabulary is never sorted.
  const auto later = [&](const Candidate& a, const Candidate& b) { return likelier(b, a); };
  std::ranges::make_heap(left, later);
  std::vector<Candidate> kept;
  double reached = 0;
  while (!left.empty() && (kept.empty() || reached < wanted)) {
    std::ranges::pop_heap(left, later);
    kept.push_back({left.back().token, weight(left.back())});
    left.pop_back();
    reached += kept.back().probability;
  }
  for (Candidate& candidate : kept)
    candidate.probability /= config.top_p < 1 ? reached : total;
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
