// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/token_frequencies.hpp"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace espalier {

TokenFrequencies sample_frequencies(const std::vector<std::string>& files) {
  constexpr Index stretch = 4096;  // tokens
  constexpr Index most_stretches = 256;
  std::vector<TokenFile> opened;
  TokenFrequencies frequencies;
  for (const std::string& file : files)
    frequencies.num_tokens += opened.emplace_back(file).num_tokens();
  const Index every = std::max(stretch, frequencies.num_tokens / most_stretches);
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
