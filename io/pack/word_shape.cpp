// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/word_shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace espalier {
namespace {

// Fewer words than these may have any shape by chance.
constexpr std::size_t least_words = 16;
constexpr std::size_t least_words_for_floats = 256;

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte == 0x7f || (byte < 0x20 && std::string_view("\t\n\r\f\v").find(c) == std::string_view::npos);
}

}  // namespace

void WordShape::add(std::string_view bytes) {
  num_bytes_ += bytes.size();
  num_controls_ += static_cast<std::size_t>(std::count_if(bytes.begin(), bytes.end(), is_control));
  for (std::size_t i = 0; i + 2 <= bytes.size(); i += 2) {
    std::uint16_t word = 0;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    const auto swapped = static_cast<std::uint16_t>(word << 8 | word >> 8);
    low_first_.add(i / 2, word);
    high_first_.add(i / 2, swapped);
    has_ones_ = has_ones_ || word == 0xffff;
    first_word_ = num_words_ == 0 ? word : first_word_;
    all_are_first_ = all_are_first_ && word == first_word_;
    num_high_bytes_ += word >= 0x100 ? 1 : 0;
    low_bytes_ |= word & 0xff;
    ++num_words_;
  }
}

void WordShape::Columns::add(std::size_t index, std::uint16_t word) {
  const auto magnitude = static_cast<std::uint16_t>(word & 0x7fff);
  Column& column = at[index % 4];
  if (word != 0xffff)
    column.largest = std::max(column.largest, word);
  column.largest_magnitude = std::max(column.largest_magnitude, magnitude);
  if (magnitude > 0)
    column.least_magnitude = std::min(column.least_magnitude, magnitude);
  num_high_bits += word != magnitude ? 1 : 0;
  num_subnormals += magnitude > 0 && magnitude < 0x400 ? 1 : 0;
}

// Of tokens one byte in ten or so is a control character, of text next to none.
bool WordShape::is_text() const { return num_controls_ * 50 <= num_bytes_; }

// The sign, the exponent and the first bits of the fraction lie between these, in every `step`th column.
bool WordShape::Columns::lie_between(std::size_t first_column, std::size_t step, unsigned least, unsigned most) const {
  for (std::size_t c = first_column; c < at.size(); c += step)
    if (at[c].largest_magnitude > most || at[c].least_magnitude < least)
      return false;
  return true;
}

// Two of them in each word: both are below 128, which of uint16 tokens above 255 half are not.
bool WordShape::are_bytes() const {
  return num_words_ >= least_words_for_floats && (low_bytes_ & 0x80U) == 0 && 2 * num_high_bytes_ > num_words_;
}

// Of magnitudes between about 1e-10 and 1e7, of both signs. No vocabulary leaves out so many of its entries; that of
// fp16 would be left out at its beginning, where the frequent tokens are. `high` is the column of the exponent of fp64,
// `low` that of its lowest bits: the order of the bytes of a number is also that of its words.
std::string WordShape::float_name(const Columns& columns, std::size_t low, std::size_t high) const {
  if (num_words_ < least_words_for_floats)
    return "";
  const bool both_signs = columns.num_high_bits * 10 > num_words_ && columns.num_high_bits * 10 < num_words_ * 9;
  if (both_signs && columns.lie_between(0, 1, 0x2f00, 0x4b00))
    return "bf16";
  if (both_signs && columns.num_subnormals * 50 < num_words_ && columns.lie_between(0, 1, 1, 0x5800) &&
      columns.at[0].largest_magnitude > 0x2000)
    return "fp16";
  if (columns.at[low].largest <= 0x4b00)
    return "";
  if (columns.lie_between(high % 2, 2, 0x2f00, 0x4b00))
    return "fp32";
  return columns.lie_between(high, 4, 0x3d00, 0x4200) ? "fp64" : "";
}

// Negative ones, as labels of padding are, have 65535 where the others have 0.
std::string WordShape::integer_name() const {
  const std::uint16_t even = low_first_.largest(0, 2);
  const std::uint16_t odd = low_first_.largest(1, 3);
  const char* const high_bits = has_ones_ ? "0 or 65535" : "0";
  if (odd == 0 && low_first_.at[2].largest == 0)
    return fmt::format("integers of 64 bits: three of four uint16 are {}", high_bits);
  if (even == 0 && low_first_.at[1].largest == 0)
    return fmt::format("integers of 64 bits, high byte first: three of four uint16 are {}", high_bits);
  if (odd == 0)
    return fmt::format("integers of 32 bits: every second uint16 is {}", high_bits);
  if (even == 0)
    return fmt::format("integers of 32 bits, high byte first: every second uint16 is {}", high_bits);
  // Vocabularies of 65536 to a million tokens.
  const char* const or_ones = has_ones_ ? " or 65535" : "";
  if (odd < 16 && even >= 4096)
    return fmt::format("integers of 32 bits: every second uint16 is at most {}{}", odd, or_ones);
  if (const std::uint16_t first = high_first_.largest(0, 2); first < 16 && high_first_.largest(1, 3) >= 4096)
    return fmt::format("integers of 32 bits, high byte first: every second uint16 is at most {}{}", first, or_ones);
  return "";
}

std::string WordShape::name() const {
  if (num_words_ < least_words)
    return "";
  if (all_are_first_ && (first_word_ == 0 || first_word_ == 0xffff))
    return first_word_ == 0 ? "nothing but zeros" : "nothing but 65535";
  if (low_first_.largest(0, 1) == 0 && low_first_.largest(2, 3) == 0)
    return "nothing but 0 and 65535";
  if (std::string integers = integer_name(); !integers.empty())
    return integers;
  if (low_bytes_ == 0)
    return "uint16 with the high byte first: every one is a multiple of 256";
  if (is_text())
    return "text";
  if (are_bytes())
    return "bytes (uint8): two in each uint16, all below 128";
  if (const std::string type = float_name(low_first_, 0, 3); !type.empty())
    return fmt::format("floating-point numbers ({})", type);
  const std::string type = float_name(high_first_, 3, 0);
  return type.empty() ? "" : fmt::format("floating-point numbers ({}), high byte first", type);
}

}  // namespace espalier
