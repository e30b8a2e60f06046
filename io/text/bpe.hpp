// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/text/merge_table.hpp"
#include "io/text/vocabulary.hpp"

namespace espalier {

/// Byte pair encoding (Sennrich et al., 2016): a word begins as characters or bytes, and the pair of neighbours with
/// the lowest rank is merged, the leftmost first, until no pair is left.
class Bpe {
 public:
  struct Options {
    bool bytes = false;          ///< a word is first split into bytes, else into characters of UTF-8
    bool byte_fallback = false;  ///< a character without a token becomes the tokens <0x00> to <0xFF> of its bytes
    TokenId unknown = -1;        ///< the token of a character without one; -1: such characters are left out
    bool fuse_unknown = false;   ///< neighbouring characters without a token become one unknown token
    bool ignore_merges = false;  ///< a word that is a token stays whole, whatever the merges would make of it
  };
  /// The ids of the left and of the right token of a merge. Their texts together are the text of a token.
  using Pair = std::pair<TokenId, TokenId>;

  /// @param merges the lowest rank first
  /// @throws std::runtime_error for a pair whose texts together are the text of no token
  Bpe(Vocabulary vocabulary, const std::vector<Pair>& merges, const Options& options);

  /// Byte pair encoding with tiktoken's ranks: every pair whose texts together are a token's text is a merge, and the
  /// id of that token is the rank of the merge.
  /// @throws std::runtime_error where a byte has no token
  static Bpe of_ranks(Vocabulary vocabulary, bool ignore_merges);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// Appends the tokens of a word, which is not empty.
  void encode_word(std::string_view word, std::vector<TokenId>& tokens) const;

  /// Is there no merge of a token that ends with another character and a token that begins with `mark`? Then a word may
  /// be cut before each mark, and its tokens stay the same.
  bool never_merges_into(std::string_view mark) const;

 private:
  Bpe(Vocabulary vocabulary, const Options& options);
  void encode_uncached(std::string_view word, std::vector<TokenId>& tokens) const;
  void begin_with_bytes(std::string_view word, std::vector<TokenId>& tokens) const;
  void begin_with_characters(std::string_view word, std::vector<TokenId>& tokens) const;
  void fall_back(std::string_view bytes, std::vector<TokenId>& tokens, bool& unknown_before) const;

  Vocabulary vocabulary_;
  Options options_;
  MergeTable merges_;
  std::array<TokenId, 256> byte_tokens_{};      // by byte; only with options_.bytes
  std::array<TokenId, 256> fallback_tokens_{};  // by byte: the tokens <0x00> to <0xFF>
  std::vector<TokenId> character_tokens_;       // by code point
  std::uint64_t id_;                            // marks this object's words in the cache of words
};

/// Merges the tokens from `first` on.
void merge_tokens(std::vector<TokenId>& tokens, std::size_t first, const MergeTable& merges);

}  // namespace espalier
