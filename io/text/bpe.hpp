// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/scalars.hpp"
#include "io/text/vocabulary.hpp"

namespace espalier {

/// Which pairs of tokens become which token, the lowest rank first.
class MergeTable {
 public:
  static constexpr std::uint32_t no_rank = 0xFFFFFFFF;

  struct Merge {
    std::uint32_t rank = no_rank;
    TokenId merged = -1;
  };

  /// Capacity for so many pairs.
  void reserve(std::size_t num_pairs);
  /// A pair that is there already gets the new rank. @pre reserve() counted it
  void insert(TokenId left, TokenId right, Merge merge);
  /// `no_rank` where the pair stays two tokens.
  Merge find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    std::uint64_t pair = empty;
    Merge merge;
  };
  static constexpr std::uint64_t empty = ~std::uint64_t{0};

  static std::uint64_t pair_of(TokenId left, TokenId right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  // Fibonacci hashing: the upper bits of a product with 2^64 / golden ratio.
  std::size_t slot_of(std::uint64_t pair) const {
    return (pair * 0x9E3779B97F4A7C15U ^ pair >> 29) * 0xBF58476D1CE4E5B9U >> shift_;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  int shift_ = 63;
};

inline void MergeTable::reserve(std::size_t num_pairs) {
  shift_ = 63;
  while ((std::uint64_t{1} << (64 - shift_)) < 2 * num_pairs)
    --shift_;
  slots_.assign(std::size_t{1} << (64 - shift_), {});
}

inline void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t slot = slot_of(pair);
  while (slots_[slot].pair != empty && slots_[slot].pair != pair)
    slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = {pair, merge};
}

inline MergeTable::Merge MergeTable::find(TokenId left, TokenId right) const {
  const std::uint64_t pair = pair_of(left, right);
  for (std::size_t slot = slot_of(pair); slots_[slot].pair != empty; slot = (slot + 1) & (slots_.size() - 1))
    if (slots_[slot].pair == pair)
      return slots_[slot].merge;
  return {};
}

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

/// The tokens of words that were met before, of one thread: a table of fixed size, in which a word takes the place of
/// another with the same hash. A word is one cache line.
class WordCache {
 public:
  static constexpr std::size_t longest_word = 22;
  static constexpr std::size_t max_tokens = 8;

  static bool may_hold(std::string_view word) { return word.size() <= longest_word; }

  /// The tokens of a word, if it is here. The span lasts until insert(). @pre may_hold(word)
  std::span<const TokenId> find(std::string_view word, std::uint64_t owner) {
    if (owner != owner_)
      clear(owner);
    slot_ = &slots_[hash_slot(word)];
    if (slot_->num_tokens == 0 || slot_->word_size != word.size() ||
        std::memcmp(slot_->word.data(), word.data(), word.size()) != 0)
      return {};
    return {slot_->tokens.data(), slot_->num_tokens};
  }

  /// Those of the word that find() has just not found.
  void insert(std::string_view word, std::span<const TokenId> tokens) {
    if (tokens.empty() || tokens.size() > max_tokens)
      return;
    slot_->word_size = static_cast<std::uint8_t>(word.size());
    slot_->num_tokens = static_cast<std::uint8_t>(tokens.size());
    std::memcpy(slot_->word.data(), word.data(), word.size());
    std::memcpy(slot_->tokens.data(), tokens.data(), tokens.size_bytes());
  }

 private:
  struct alignas(64) Slot {
    std::uint8_t word_size = 0;
    std::uint8_t num_tokens = 0;
    std::array<char, longest_word> word = {};
    std::array<TokenId, max_tokens> tokens = {};
  };
  static_assert(sizeof(Slot) == 64);
  static constexpr int slot_bits = 15;  // 2 MiB

  void clear(std::uint64_t owner) {
    slots_.assign(std::size_t{1} << slot_bits, {});
    owner_ = owner;
  }

  static std::size_t hash_slot(std::string_view word) {
    std::uint64_t hash = word.size();
    for (std::size_t i = 0; i < word.size(); i += 8) {
      std::uint64_t part = 0;
      std::memcpy(&part, word.data() + i, word.size() - i < 8 ? word.size() - i : 8);
      hash = (hash ^ part) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32;
    }
    return hash * 0xBF58476D1CE4E5B9U >> (64 - slot_bits);
  }

  std::vector<Slot> slots_;
  Slot* slot_ = nullptr;
  std::uint64_t owner_ = 0;
};

}  // namespace espalier
