// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/byte_tokenizer.hpp"

namespace espalier {

void ByteTokenizer::encode(std::string_view text, std::vector<TokenId>& tokens, EncodeOptions) const {
  const std::size_t first = tokens.size();
  tokens.resize(first + text.size());
  for (std::size_t i = 0; i < text.size(); ++i)
    tokens[first + i] = static_cast<unsigned char>(text[i]);
}

std::string ByteTokenizer::decode(std::span<const TokenId> tokens, bool) const {
  std::string text;
  text.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= 256)
      refuse_token(tokens[i], i, name(), vocab_size());
    text += static_cast<char>(tokens[i]);
  }
  return text;
}

}  // namespace espalier
