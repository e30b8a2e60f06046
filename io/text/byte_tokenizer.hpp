// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/text/tokenizer.hpp"

namespace espalier {

/// One token a byte, 256 ids: no vocabulary file, any text, any language.
class ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  Index vocab_size() const override { return 256; }
  void encode(std::string_view text, std::vector<TokenId>& tokens, EncodeOptions options = {}) const override;
  std::string decode(std::span<const TokenId> tokens, bool skip_special_tokens = false) const override;
  TokenId special_token(std::string_view) const override { return -1; }
  bool can_split_anywhere() const override { return true; }
};

}  // namespace espalier
