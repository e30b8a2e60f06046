// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/blend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.hpp"

// Compiled without fused multiply-adds: they would break ties in another way than Megatron's rounding does.

namespace espalier {
namespace {

constexpr Index millionths = 1'000'000;
constexpr Index longest_period = Index{1} << 30;

// The smallest denominator of all weights, as far as doubles tell; 0: it is above a million.
Index common_denominator(const std::vector<double>& weights) {
  const auto fits = [&](Index denominator) {
    const auto q = static_cast<double>(denominator);
    return std::all_of(weights.begin(), weights.end(),
                       [&](double weight) { return std::abs(weight - std::round(weight * q) / q) <= 1e-15; });
  };
  for (Index denominator = 1; denominator <= millionths; ++denominator)
    if (fits(denominator))
      return denominator;
  return 0;
}

}  // namespace

Blend::Blend(std::vector<double> weights) : weights_(std::move(weights)) {
  const double sum = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  ESPALIER_ASSERT(sum > 0 && *std::min_element(weights_.begin(), weights_.end()) >= 0,
                  "a blend needs weights, one of them above 0 and none below");
  for (double& weight : weights_)
    weight /= sum;
  cycle_ = common_denominator(weights_);
  if (cycle_ == 0)
    round_to_millionths();
  for (std::size_t set = 0; set < weights_.size(); ++set) {
    parts_.push_back(std::llround(weights_[set] * static_cast<double>(cycle_)));
    require_part(set, parts_.back());
  }
  period_ = longest_period / cycle_ * cycle_;
  drawn_.assign(weights_.size(), 0.0);
}

void Blend::require_part(std::size_t set, Index part) const {
  if (weights_[set] > 0 && part == 0)
    throw Error(ExitCode::usage, {.what = "an entry of data.train gets too small a share of the samples",
                                  .where = fmt::format("data.train[{}]", set),
                                  .got = fmt::format("{:.3g} of all samples", weights_[set]),
                                  .wanted = "at least a millionth",
                                  .todo = "raise its weight or epochs, or join it with another entry"});
}

// Each down, then up those that lost most, until the sum is 1.
void Blend::round_to_millionths() {
  cycle_ = millionths;
  std::vector<double> parts;
  std::vector<std::size_t> by_loss(weights_.size());
  std::iota(by_loss.begin(), by_loss.end(), std::size_t{0});
  for (const double weight : weights_)
    parts.push_back(std::floor(weight * static_cast<double>(millionths)));
  const auto loss = [&](std::size_t set) { return weights_[set] * static_cast<double>(millionths) - parts[set]; };
  std::stable_sort(by_loss.begin(), by_loss.end(), [&](std::size_t a, std::size_t b) { return loss(a) > loss(b); });
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(static_cast<double>(millionths) - sum); ++i)
    parts[by_loss[i]] += 1;
  for (std::size_t set = 0; set < weights_.size(); ++set) {
    require_part(set, static_cast<Index>(parts[set]));
    weights_[set] = parts[set] / static_cast<double>(millionths);
  }
}

std::size_t Blend::next_set() const {
  const auto samples = static_cast<double>(std::max<Index>(next_, 1));
  std::size_t furthest = 0;
  double most = -std::numeric_limits<double>::infinity();
  for (std::size_t set = 0; set < weights_.size(); ++set) {
    const double lag = weights_[set] * samples - drawn_[set];
    if (lag > most && weights_[set] > 0) {  // by the lag alone a set of weight 0 could come first
      most = lag;
      furthest = set;
    }
  }
  return furthest;
}

void Blend::seek(Index sample) const {
  const Index cycle_begin = sample / cycle_ * cycle_;
  if (next_ > sample || next_ < cycle_begin) {
    next_ = cycle_begin;
    const Index cycles = sample / cycle_;
    for (std::size_t set = 0; set < parts_.size(); ++set)
      drawn_[set] = static_cast<double>(cycles * parts_[set]);
  }
  for (; next_ < sample; ++next_)
    drawn_[next_set()] += 1;
}

Blend::Draw Blend::at(Index sample) const {
  seek(sample % period_);
  const std::size_t set = next_set();
  return {set, sample / period_ * (period_ / cycle_) * parts_[set] + static_cast<Index>(drawn_[set])};
}

std::vector<Index> Blend::drawn_before(Index sample) const {
  seek(sample % period_);
  std::vector<Index> counts;
  for (std::size_t set = 0; set < parts_.size(); ++set)
    counts.push_back(sample / period_ * (period_ / cycle_) * parts_[set] + static_cast<Index>(drawn_[set]));
  return counts;
}

}  // namespace espalier
