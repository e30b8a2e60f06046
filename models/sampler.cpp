// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"

namespace espalier {

TokenId sample_token(const std::vector<double>& logits, const SamplingConfig& config, double u) {
  ESPALIER_ASSERT(!logits.empty(), "espalier::sample_token: no logits");
  std::vector<TokenId> order(logits.size());
  std::iota(order.begin(), order.end(), TokenId{0});
  const auto logit = [&](TokenId token) { return logits[static_cast<std::size_t>(token)]; };
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return logit(a) > logit(b); });
  if (config.temperature <= 0)
    return order.front();
  if (config.top_k > 0 && static_cast<std::size_t>(config.top_k) < order.size())
    order.resize(static_cast<std::size_t>(config.top_k));

  std::vector<double> weights;  // of softmax, the largest first
  weights.reserve(order.size());
  for (const TokenId token : order)
    weights.push_back(std::exp((logit(token) - logit(order.front())) / config.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < config.top_p * total))
    kept += weights[count++];

  double left = u * kept;
  for (std::size_t i = 0; i < count; ++i) {
    left -= weights[i];
    if (left < 0)
      return order[i];
  }
  return order[count - 1];  // rounding
}

}  // namespace espalier
