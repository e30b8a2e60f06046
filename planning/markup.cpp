// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/markup.hpp"

#include <cctype>

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

bool is_inside_a_word(std::string_view text, std::size_t at) {
  const auto is_of_a_word = [](char byte) { return std::isalnum(static_cast<unsigned char>(byte)) != 0; };
  return at > 0 && at + 1 < text.size() && is_of_a_word(text[at - 1]) && is_of_a_word(text[at + 1]);
}

// Those that begin or end emphasis, code, links, cells, formulas, headings.
constexpr std::string_view markdown_signs = "\\`*_[]|~$#";

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

std::string markdown_escaped(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view character = first_character(text.substr(at));
    const char first = text[at];
    if (character.empty())
      result += "\uFFFD";
    else if (first == '\n' || first == '\t')
      result += ' ';
    else if (first == '"' || first == '\'')
      result += first;
    else if (markdown_signs.find(first) != std::string_view::npos && !(first == '_' && is_inside_a_word(text, at)))
      result += {'\\', first};
    else
      result += escaped(character);
    at += character.empty() ? 1 : character.size();
  }
  return result;
}

}  // namespace espalier
