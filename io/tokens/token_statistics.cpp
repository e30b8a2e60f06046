// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/token_statistics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "io/tokens/token_documents.hpp"

namespace espalier {

void LengthHistogram::add(Index num_tokens) {
  ++bins[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(num_tokens)))];
  shortest = num_documents == 0 ? num_tokens : std::min(shortest, num_tokens);
  longest = std::max(longest, num_tokens);
  ++num_documents;
}

Index LengthHistogram::first_of(std::size_t bin) { return bin == 0 ? 0 : Index{1} << (bin - 1); }

Index LengthHistogram::last_of(std::size_t bin) { return bin == 0 ? 0 : 2 * first_of(bin) - 1; }

Index count_targets(const TokenFile& file) {
  if (!file.has_loss_mask())
    return file.num_tokens();
  Index num_targets = 0;
  std::vector<std::uint8_t> loss_mask(std::size_t{1} << 20);
  for (Index first = 0; first < file.num_tokens(); first += static_cast<Index>(loss_mask.size())) {
    loss_mask.resize(std::min(loss_mask.size(), static_cast<std::size_t>(file.num_tokens() - first)));
    file.read_loss_mask(first, loss_mask);
    num_targets += std::ranges::count(loss_mask, std::uint8_t{1});
  }
  return num_targets;
}

TokenStatistics count_tokens(const TokenFile& file, std::optional<TokenId> document_end) {
  TokenStatistics statistics;
  statistics.smallest_id = std::numeric_limits<TokenId>::max();
  Index length = 0;
  read_documents(file, document_end, [&](std::span<const TokenId> piece, bool ends) {
    if (!piece.empty()) {
      const auto [smallest, largest] = std::ranges::minmax(piece);
      statistics.smallest_id = std::min(statistics.smallest_id, smallest);
      statistics.largest_id = std::max(statistics.largest_id, largest);
    }
    length += static_cast<Index>(piece.size());
    if (ends)
      statistics.lengths.add(std::exchange(length, 0));
  });
  return statistics;
}

TokenFrequencies sample_frequencies(const std::vector<std::string>& files) {
  constexpr Index stretch = 4096;  // tokens
  constexpr Index max_stretches = 256;
  std::vector<TokenFile> opened;
  TokenFrequencies frequencies;
  for (const std::string& file : files)
    frequencies.num_tokens += opened.emplace_back(file).num_tokens();
  const Index every = std::max(stretch, frequencies.num_tokens / max_stretches);
  std::unordered_map<TokenId, Index> counts;
  std::vector<TokenId> tokens;
  Index begin = 0;  // of the file, among the tokens of all; a stretch may lie in several files
  for (const TokenFile& file : opened) {
    const Index end = begin + file.num_tokens();
    for (Index at = begin; at < end;) {
      const bool is_read = at % every < stretch;
      const Index count = std::min((is_read ? stretch : every) - at % every, end - at);
      tokens.resize(static_cast<std::size_t>(is_read ? count : 0));
      file.read(at - begin, tokens);
      for (const TokenId token : tokens)
        ++counts[token];
      at += count;
    }
    begin = end;
  }
  double total = 0;
  for (const auto& [token, count] : counts)
    total += static_cast<double>(count);
  for (const auto& [token, count] : counts)
    frequencies.unigram_loss -= static_cast<double>(count) / total * std::log(static_cast<double>(count) / total);
  if (total > 0)  // Miller and Madow 1955
    frequencies.unigram_loss += (static_cast<double>(counts.size()) - 1) / (2 * total);
  return frequencies;
}

}  // namespace espalier
