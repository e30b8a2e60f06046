// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/text/added_tokens.hpp"
#include "io/text/bpe.hpp"
#include "io/text/normalizer.hpp"
#include "io/text/pre_tokenizer.hpp"
#include "io/text/text_decoder.hpp"
#include "io/text/tokenizer.hpp"

namespace espalier {

/// What a BpeTokenizer is made of.
struct BpeParts {
  std::string kind = "bpe";   ///< the beginning of its name
  std::string contents = {};  ///< its name has the hash of this
  Bpe bpe;
  AddedTokens added_tokens = {};
  Normalizer normalizer = {};
  PreTokenizer pre_tokenizer = {};
  std::vector<TokenId> prefix = {};  ///< of add_special_tokens
  std::vector<TokenId> suffix = {};
  TextDecoder decoder = {};
  std::vector<std::string> texts =
      {};  ///< of each id: bytes where decoder.is_byte_level(), else what the decoder reads
};

/// Byte pair encoding, of a tokenizer.json or of a tiktoken file: added tokens, normalizer, pre-tokenizer, merges, and
/// the way back.
class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts);

  std::string name() const override { return name_; }
  Index vocab_size() const override { return std::ssize(parts_.texts); }
  void encode(std::string_view text, std::vector<TokenId>& tokens, EncodeOptions options = {}) const override;
  std::string decode(std::span<const TokenId> tokens, bool skip_special_tokens = false) const override;
  TokenId special_token(std::string_view text) const override;

 private:
  void encode_part(std::string_view text, bool is_begin, std::vector<TokenId>& tokens) const;
  void encode_words(std::string_view text, bool is_begin, std::vector<TokenId>& tokens) const;

  BpeParts parts_;
  std::string name_;
  std::vector<bool> is_special_;  // by id
  bool cuts_at_marks_;            // words before each U+2581 that follows another character
};

}  // namespace espalier
