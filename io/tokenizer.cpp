// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokenizer.hpp"

#include <fmt/format.h>

#include "core/error.hpp"

namespace espalier {

void ByteTokenizer::encode(std::string_view text, std::vector<TokenId>& tokens) const {
  const std::size_t first = tokens.size();
  tokens.resize(first + text.size());
  for (std::size_t i = 0; i < text.size(); ++i)
    tokens[first + i] = static_cast<unsigned char>(text[i]);
}

std::string ByteTokenizer::decode(std::span<const TokenId> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= 256)
      throw Error(ExitCode::data, {.what = "a token is not in the tokenizer's vocabulary",
                                   .where = fmt::format("token {}", i),
                                   .got = fmt::format("id {}", tokens[i]),
                                   .wanted = "0 to 255 (tokenizer \"byte\")",
                                   .todo = "decode these tokens with the tokenizer that made them"});
    text += static_cast<char>(tokens[i]);
  }
  return text;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name) {
  if (name == "byte")
    return std::make_unique<ByteTokenizer>();
  throw Error(ExitCode::usage, {.what = "unknown tokenizer",
                                .got = '"' + name + '"',
                                .wanted = "\"byte\"",
                                .todo = "--tokenizer byte; a token file or checkpoint that names another one is of a "
                                        "newer Espalier"});
}

}  // namespace espalier
