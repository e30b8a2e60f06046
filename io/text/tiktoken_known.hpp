// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// What a tiktoken file does not have.
struct TiktokenSplit {
  std::string pattern;
  std::vector<std::pair<std::string, TokenId>> special_tokens = {};
  std::vector<TokenId> prefix = {};  ///< of add_special_tokens
  bool nfc = false;                  ///< texts are normalized
};

/// That of a known tokenizer with so many ranks.
std::optional<TiktokenSplit> known_tiktoken_split(Index num_ranks);

/// "gpt2 (50256), ..."
std::string known_tiktoken_names();

}  // namespace espalier
