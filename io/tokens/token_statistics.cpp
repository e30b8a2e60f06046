// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/token_statistics.hpp"

#include <algorithm>
#include <bit>
#include <limits>
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

}  // namespace espalier
