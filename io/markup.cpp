// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/markup.hpp"

#include <cctype>
#include <string>

#include "core/printable_text.hpp"

namespace espalier {
namespace {

std::string escaped(char byte) {
  switch (byte) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return {byte};
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
  for (const char byte : printable_text(text))
    result += escaped(byte);
  return result;
}

std::string markdown_escaped(std::string_view text) {
  const std::string printable = printable_text(text);
  std::string result;
  for (std::size_t at = 0; at < printable.size(); ++at) {
    const char byte = printable[at];
    if (byte == '\n' || byte == '\t')
      result += ' ';
    else if (byte == '"' || byte == '\'')
      result += byte;
    else if (markdown_signs.find(byte) != std::string_view::npos && !(byte == '_' && is_inside_a_word(printable, at)))
      result += {'\\', byte};
    else
      result += escaped(byte);
  }
  return result;
}

}  // namespace espalier
