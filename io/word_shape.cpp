// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/word_shape.hpp"

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
    const auto magnitude = static_cast<std::uint16_t>(word & 0x7fff);
    Column& column = columns_[(i / 2) % 4];
    if (word != 0xffff)
      column.largest = std::max(column.largest, word);
    column.largest_magnitude = std::max(column.largest_magnitude, magnitude);
    if (magnitude > 0)
      column.least_magnitude = std::min(column.least_magnitude, magnitude);
    first_word_ = num_words_ == 0 ? word : first_word_;
    all_are_first_ = all_are_first_ && word == first_word_;
    num_high_bits_ += word != magnitude ? 1 : 0;
    num_high_bytes_ += word >= 0x100 ? 1 : 0;
    num_subnormals_ += magnitude > 0 && magnitude < 0x400 ? 1 : 0;
    largest_swapped_[i / 2 % 2] = std::max(largest_swapped_[i / 2 % 2], swapped);
    low_bytes_ |= word & 0xff;
    ++num_words_;
  }
}

// Of tokens one byte in ten or so is a control character, of text next to none.
bool WordShape::is_text() const { return num_controls_ * 50 <= num_bytes_; }

// The sign, the exponent and the first bits of the fraction lie between these, in every `step`th column.
bool WordShape::are_floats(std::size_t first_column, std::size_t step, unsigned least, unsigned most) const {
  for (std::size_t c = first_column; c < columns_.size(); c += step)
    if (columns_[c].largest_magnitude > most || columns_[c].least_magnitude < least)
      return false;
  return true;
}

// Two of them in each word: both are below 128, which of uint16 tokens above 255 half are not.
bool WordShape::are_bytes() const {
  return num_words_ >= least_words_for_floats && (low_bytes_ & 0x80U) == 0 && 2 * num_high_bytes_ > num_words_;
}

// Of magnitudes between about 1e-10 and 1e7, of both signs. No vocabulary leaves out so many of its entries; that of
// fp16 would be left out at its beginning, where the frequent tokens are.
std::string WordShape::float_name() const {
  if (num_words_ < least_words_for_floats)
    return "";
  const bool both_signs = num_high_bits_ * 10 > num_words_ && num_high_bits_ * 10 < num_words_ * 9;
  if (both_signs && are_floats(0, 1, 0x2f00, 0x4b00))
    return "floating-point numbers (bf16)";
  if (both_signs && num_subnormals_ * 50 < num_words_ && are_floats(0, 1, 1, 0x5800) &&
      columns_[0].largest_magnitude > 0x2000)
    return "floating-point numbers (fp16)";
  if (are_floats(1, 2, 0x2f00, 0x4b00) && columns_[0].largest > 0x4b00)
    return "floating-point numbers (fp32)";
  if (are_floats(3, 4, 0x3d00, 0x4200) && columns_[0].largest > 0x4b00)
    return "floating-point numbers (fp64)";
  return "";
}

std::string WordShape::name() const {
  if (num_words_ < least_words)
    return "";
  const auto both = [&](std::size_t a, std::size_t b) { return std::max(columns_[a].largest, columns_[b].largest); };
  const std::uint16_t even = both(0, 2);
  const std::uint16_t odd = both(1, 3);
  if (all_are_first_ && (first_word_ == 0 || first_word_ == 0xffff))
    return first_word_ == 0 ? "nothing but zeros" : "nothing but 65535";
  if (odd == 0 && columns_[2].largest == 0)
    return "integers of 64 bits: three of four uint16 are 0";
  if (even == 0 && columns_[1].largest == 0)
    return "integers of 64 bits, high byte first: three of four uint16 are 0";
  if (odd == 0)
    return "integers of 32 bits: every second uint16 is 0";
  if (even == 0)
    return "integers of 32 bits, high byte first: every second uint16 is 0";
  // Vocabularies of 65536 to a million tokens.
  if (odd < 16 && even >= 4096)
    return fmt::format("integers of 32 bits: every second uint16 is at most {}", odd);
  if (largest_swapped_[0] < 16 && largest_swapped_[1] >= 4096)
    return fmt::format("integers of 32 bits, high byte first: every second uint16 is at most {}", largest_swapped_[0]);
  if (low_bytes_ == 0)
    return "uint16 with the high byte first: every one is a multiple of 256";
  if (is_text())
    return "text";
  if (are_bytes())
    return "bytes (uint8): two in each uint16, all below 128";
  return float_name();
}

}  // namespace espalier
