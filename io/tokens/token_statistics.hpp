// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "io/tokens/token_file.hpp"

namespace espalier {

/// How many documents have how many tokens: bin 0 counts empty ones, bin k those of 2^(k-1) to 2^k - 1 tokens.
struct LengthHistogram {
  std::array<Index, 64> bins = {};
  Index num_documents = 0;
  Index shortest = 0;  ///< tokens
  Index longest = 0;

  void add(Index num_tokens);
  static Index first_of(std::size_t bin);  ///< the smallest length that it counts
  static Index last_of(std::size_t bin);
};

struct TokenStatistics {
  TokenId smallest_id = 0;
  TokenId largest_id = 0;  ///< at most the largest TokenId: what is read of larger ones
  LengthHistogram lengths;
};

/// How many tokens the loss mask of a file counts as targets: all where it has none.
Index count_targets(const TokenFile& file);

/// Reads the whole file. @param document_end as of read_documents()
TokenStatistics count_tokens(const TokenFile& file, std::optional<TokenId> document_end);

/// What can be said of token files without a model.
struct TokenFrequencies {
  Index num_tokens = 0;     ///< in all files
  double unigram_loss = 0;  ///< nats per token of a model that knows how often each token occurs, and nothing else
};

/// From a million tokens, in stretches all over the files (a correction for those that are too rare to be seen is
/// added): to about 0.01.
TokenFrequencies sample_frequencies(const std::vector<std::string>& files);

}  // namespace espalier
