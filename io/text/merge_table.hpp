// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// Which pairs of tokens become which token, the lowest rank first.
class MergeTable {
 public:
  static constexpr std::uint32_t no_rank = 0xFFFFFFFF;

  struct Merge {
    std::uint32_t rank = no_rank;
    TokenId merged = -1;
  };

  /// Room for so many pairs.
  void reserve(std::size_t num_pairs);
  /// A pair that is there already gets the new rank. @pre reserve() had room for it
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

}  // namespace espalier
