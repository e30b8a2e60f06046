// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace espalier {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  ///< U+FFFD

/// Bytes of the character at the beginning of valid, non-empty UTF-8.
inline std::size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/// Is the byte one that continues a character, rather than begins it?
inline bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// The last character of valid, non-empty UTF-8.
inline std::string_view last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && continues_character(text[begin]))
    --begin;
  return text.substr(begin);
}

/// The code point of the character at the beginning of valid, non-empty UTF-8.
std::uint32_t code_point(std::string_view text);

/// Appends a character as UTF-8.
void append_utf8(std::uint32_t code_point, std::string& text);

/// Bytes at the beginning that are ASCII.
std::size_t ascii_bytes(std::string_view text);

/// Bytes at the beginning that are UTF-8: no surrogate, nothing overlong, nothing beyond U+10FFFF.
std::size_t valid_utf8_bytes(std::string_view text);

/// UTF-8 of any bytes: a U+FFFD for each longest part that begins a character and does not end it, and for each other
/// byte that is none, as Python and Rust have it.
std::string replace_invalid_utf8(std::string_view bytes);

}  // namespace espalier
