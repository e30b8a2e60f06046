// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// The tokens of words that were met before, of one thread: a table of fixed size, in which a word takes the place of
/// another with the same hash. A word is one cache line.
class WordCache {
 public:
  static constexpr std::size_t longest_word = 22;
  static constexpr std::size_t most_tokens = 8;

  static bool may_hold(std::string_view word) { return word.size() <= longest_word; }

  /// The tokens of a word, if it is here. The span lasts until insert(). @pre may_hold(word)
  std::span<const TokenId> find(std::string_view word, std::uint64_t owner) {
    if (owner != owner_)
      clear(owner);
    slot_ = &slots_[place(word)];
    if (slot_->num_tokens == 0 || slot_->word_size != word.size() ||
        std::memcmp(slot_->word.data(), word.data(), word.size()) != 0)
      return {};
    return {slot_->tokens.data(), slot_->num_tokens};
  }

  /// Those of the word that find() has just not found.
  void insert(std::string_view word, std::span<const TokenId> tokens) {
    if (tokens.empty() || tokens.size() > most_tokens)
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
    std::array<TokenId, most_tokens> tokens = {};
  };
  static_assert(sizeof(Slot) == 64);
  static constexpr int slot_bits = 15;  // 2 MiB

  void clear(std::uint64_t owner) {
    slots_.assign(std::size_t{1} << slot_bits, {});
    owner_ = owner;
  }

  static std::size_t place(std::string_view word) {
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
