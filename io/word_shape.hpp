// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  bool are_floats(std::size_t first_column, std::size_t step, unsigned least, unsigned most) const;
  std::string float_name() const;
  bool is_text() const;
  bool are_bytes() const;

  std::array<Column, 4> columns_{};
  std::array<std::uint16_t, 2> largest_swapped_{};  // of even and odd words, with the high byte first
  unsigned low_bytes_ = 0;
  std::uint16_t first_word_ = 0;
  bool all_are_first_ = true;
  std::size_t num_high_bits_ = 0;   // words with the highest bit
  std::size_t num_high_bytes_ = 0;  // words of 256 or more
  std::size_t num_subnormals_ = 0;  // words that as fp16 are smaller than its normal numbers
  std::size_t num_words_ = 0;
  std::size_t num_bytes_ = 0;
  std::size_t num_controls_ = 0;  // control characters but tabs and ends of lines
};

}  // namespace espalier
