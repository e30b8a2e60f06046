// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/byte_level_alphabet.hpp"

#include "io/text/utf8.hpp"

namespace espalier {
namespace {

// Code points: bytes that are printable in Latin-1 are themselves, the others follow from U+0100 on.
std::array<std::uint32_t, 256> byte_level_code_points() {
  std::array<std::uint32_t, 256> points{};
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    points[byte] = printable ? byte : next++;
  }
  return points;
}

}  // namespace

const std::array<std::string, 256>& byte_level_alphabet() {
  static const std::array<std::string, 256> alphabet = [] {
    std::array<std::string, 256> texts;
    const std::array<std::uint32_t, 256> points = byte_level_code_points();
    for (std::size_t byte = 0; byte < 256; ++byte)
      append_utf8(points[byte], texts[byte]);
    return texts;
  }();
  return alphabet;
}

std::optional<std::string> bytes_of_byte_level(std::string_view text) {
  static const std::array<int, 0x200> bytes = [] {
    std::array<int, 0x200> of_points{};
    of_points.fill(-1);
    const std::array<std::uint32_t, 256> points = byte_level_code_points();
    for (std::size_t byte = 0; byte < 256; ++byte)
      of_points[points[byte]] = static_cast<int>(byte);
    return of_points;
  }();
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::uint32_t point = code_point(text);
    if (point >= bytes.size() || bytes[point] < 0)
      return std::nullopt;
    result += static_cast<char>(bytes[point]);
    text.remove_prefix(character_bytes(text));
  }
  return result;
}

}  // namespace espalier
