// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/html.hpp"

namespace espalier {
namespace {

// Bytes of the character that begins with this one; 0: none does.
std::size_t utf8_length(unsigned char first) {
  if (first < 0x80)
    return 1;
  if (first < 0xC2 || first >= 0xF5)
    return 0;
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// The character that `text` begins with; empty where it begins with none.
std::string_view first_character(std::string_view text) {
  const std::size_t length = utf8_length(static_cast<unsigned char>(text.front()));
  if (length > text.size())
    return {};
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80)
      return {};
  return text.substr(0, length);
}

std::string_view escaped(std::string_view character) {
  if (character.size() != 1)
    return character;
  const char byte = character.front();
  switch (byte) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    case '\n':
    case '\t': return character;
    default: return byte < ' ' || byte == 0x7F ? "\uFFFD" : character;
  }
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::string_view character = first_character(text);
    result += character.empty() ? "\uFFFD" : escaped(character);
    text.remove_prefix(character.empty() ? 1 : character.size());
  }
  return result;
}

}  // namespace espalier
