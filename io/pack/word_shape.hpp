// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace espalier {

/// What bytes are that were taken for uint16 tokens, told by the shape of their 16-bit words.
class WordShape {
 public:
  /// A piece of the file that begins at a multiple of eight bytes.
  void add(std::string_view bytes);

  /// "text", "integers of 32 bits: every second uint16 is 0", "floating-point numbers of 32 bits"; empty: they may be
  /// tokens.
  std::string name() const;

 private:
  /// The words at one of the four places of eight bytes.
  struct Column {
    std::uint16_t largest = 0;               ///< but for 0xffff, half of a negative integer
    std::uint16_t least_magnitude = 0xffff;  ///< without the highest bit, of those that are not 0
    std::uint16_t largest_magnitude = 0;
  };
  /// All words, read in one order of their two bytes.
  struct Columns {
    void add(std::size_t index, std::uint16_t word);
    bool lie_between(std::size_t first_column, std::size_t step, unsigned least, unsigned most) const;
    std::uint16_t largest(std::size_t a, std::size_t b) const { return std::max(at[a].largest, at[b].largest); }

    std::array<Column, 4> at{};
    std::size_t num_high_bits = 0;   ///< words with the highest bit
    std::size_t num_subnormals = 0;  ///< words that as fp16 are smaller than its normal numbers
  };
  std::string float_name(const Columns& columns, std::size_t low, std::size_t high) const;
  std::string integer_name() const;
  bool is_text() const;
  bool are_bytes() const;

  Columns low_first_;  // the order of this program's machines
  Columns high_first_;
  unsigned low_bytes_ = 0;
  std::uint16_t first_word_ = 0;
  bool all_are_first_ = true;
  bool has_ones_ = false;           // 0xffff: of padding and of negative integers
  std::size_t num_high_bytes_ = 0;  // words of 256 or more
  std::size_t num_words_ = 0;
  std::size_t num_bytes_ = 0;
  std::size_t num_controls_ = 0;  // control characters but tabs and ends of lines
};

}  // namespace espalier
