// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/validation_split.hpp"

#include <algorithm>
#include <cmath>

#include "io/text/utf8.hpp"

namespace espalier {
namespace {

constexpr double close_enough = 0.05;  // of the wanted share, or of what is left for training where that is less
constexpr Index max_slack = 1 << 16;   // bytes that are searched for the start of a line

// Bins of equal relative width, so narrow that two documents rarely meet in one: 32768 for each power of two, down to
// shares that nobody wants.
constexpr int bin_bits = 15;
constexpr int min_exponent = -24;
constexpr std::size_t num_bins = static_cast<std::size_t>(1 - min_exponent) << bin_bits;

std::size_t bin_of(double random_number) {
  int exponent = 0;
  const double mantissa = std::frexp(random_number, &exponent);  // in [0.5, 1)
  const auto within = static_cast<std::size_t>((mantissa - 0.5) * 2 * (1 << bin_bits));
  return (static_cast<std::size_t>(std::max(0, exponent - min_exponent)) << bin_bits) + within;
}

// The place in [from, to] that is nearest to `wanted` and may be a start, by what stands before and behind it.
template <class IsStart>
Index nearest_start(std::string_view text, Index from, Index to, Index wanted, const IsStart& is_start) {
  for (Index distance = 0; distance <= std::max(wanted - from, to - wanted); ++distance)
    for (const Index at : {wanted - distance, wanted + distance})
      if (at >= from && at <= to &&
          is_start(text[static_cast<std::size_t>(at - 1)], text[static_cast<std::size_t>(at)]))
        return at;
  return -1;
}

}  // namespace

ValidationSplit::ValidationSplit(std::uint64_t seed, double fraction)
    : random_(seed, "validation_split"), fraction_(fraction), bytes_(num_bins, 0.0), cut_bin_(num_bins) {}

void ValidationSplit::add(const Document& document) {
  if (!document.has_text())
    return;
  const double own = random_number(document);
  const auto size = static_cast<double>(document.size());
  bytes_[bin_of(own)] += size;
  if (own < fraction_)
    bytes_below_ += size;
}

void ValidationSplit::settle() {
  double all = 0;
  for (const double bytes : bytes_)
    all += bytes;
  const double wanted = fraction_ * all;
  const double slack = close_enough * std::min(wanted, all - wanted);
  if (std::abs(bytes_below_ - wanted) <= slack)
    return;
  double taken = 0;
  validates_.assign(num_bins, false);
  for (std::size_t bin = 0; bin < num_bins && taken < wanted - slack; ++bin) {
    if (bytes_[bin] == 0)
      continue;
    validates_[bin] = taken + bytes_[bin] <= wanted + slack;
    if (validates_[bin])
      taken += bytes_[bin];
    else if (cut_bin_ == num_bins)
      cut_bin_ = bin;
  }
  if (taken >= wanted - slack)
    return;
  share_of_cut_ = (wanted - taken) / bytes_[cut_bin_];
  slack_of_cut_ = slack / bytes_[cut_bin_];
}

ValidationSplit::Settled ValidationSplit::settled() const {
  Settled settled{{}, validates_.empty(), cut_bin_, share_of_cut_, slack_of_cut_};
  for (std::size_t bin = 0; bin < validates_.size(); ++bin)
    if (validates_[bin])
      settled.bins.push_back(bin);
  return settled;
}

void ValidationSplit::settle(const Settled& settled) {
  validates_.assign(settled.is_by_number ? 0 : num_bins, false);
  for (const std::size_t bin : settled.bins)
    validates_.at(bin) = true;
  cut_bin_ = settled.cut_bin;
  share_of_cut_ = settled.share_of_cut;
  slack_of_cut_ = settled.slack_of_cut;
}

ValidationSplit::Tail ValidationSplit::tail(const Document& document) const {
  if (!document.has_text())
    return {};
  const double own = random_number(document);
  const std::size_t bin = bin_of(own);
  if (validates_.empty() ? own < fraction_ : validates_[bin])
    return {document.size(), 0};
  if (share_of_cut_ == 0 || bin != cut_bin_)
    return {};
  const auto size = static_cast<double>(document.size());
  const auto part = static_cast<Index>(std::llround(share_of_cut_ * size));
  return {std::min(std::max(Index{1}, part), document.size() - 1),
          std::min(max_slack, static_cast<Index>(slack_of_cut_ * size))};
}

Index tail_begin(const ReadAt& read, const Document& document, const ValidationSplit::Tail& tail) {
  if (tail.wanted == 0)
    return document.end;
  // Text must stand on both sides.
  const Index first = document.text_begin + 1;
  const Index last = document.text_end - 1;
  if (tail.wanted >= document.size())
    return document.begin;
  if (first > last)
    return document.end;
  const Index wanted = std::clamp(document.end - tail.wanted, first, last);
  const Index from = std::clamp(wanted - std::max(tail.slack, Index{3}), first, last);
  const Index to = std::clamp(wanted + std::max(tail.slack, Index{3}), first, last);
  std::string text(static_cast<std::size_t>(to - from + 2), '\0');
  read(from - 1, text.data(), text.size());
  const auto nearest = [&](Index reach, const auto& is_start) {
    const Index least = std::max(from, wanted - reach);
    const Index most = std::min(to, wanted + reach);
    const Index found = nearest_start(text, least - from + 1, most - from + 1, wanted - from + 1, is_start);
    return found < 0 ? found : found + from - 1;
  };
  for (const char end : {'\n', ' '})
    if (const Index found = nearest(tail.slack, [=](char before, char) { return before == end; }); found >= 0)
      return found;
  const auto is_character = [](char, char c) { return !continues_character(c); };
  const Index found = nearest(3, is_character);
  return found < 0 ? wanted : found;
}

}  // namespace espalier
