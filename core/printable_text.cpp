// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/printable_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace espalier {
namespace {

constexpr std::uint32_t no_character = 0xFFFFFFFF;

struct Character {
  std::uint32_t code = no_character;
  std::size_t bytes = 1;  // of no character: those to leave out
};

// Bytes of the character that begins with this one; 0: none does.
std::size_t bytes_of_character(unsigned char first) {
  if (first < 0x80)
    return 1;
  if (first < 0xC2 || first > 0xF4)
    return 0;
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// That `text`, which is not empty, begins with.
Character first_character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t bytes = bytes_of_character(first);
  if (bytes == 1)
    return {first, 1};
  if (bytes == 0 || bytes > text.size() || !std::all_of(text.begin() + 1, text.begin() + bytes, is_continuation))
    return {};
  std::uint32_t code = first & (0xFFu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i)
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  const bool is_too_long = bytes > 2 && code < (bytes == 3 ? 0x800u : 0x10000u);
  return is_surrogate || is_too_long || code > 0x10FFFF ? Character{} : Character{code, bytes};
}

// Controls (C0, DEL, C1), separators of lines, marks and overrides of the direction of writing.
bool is_harmful(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

std::string visible(std::uint32_t code) {
  switch (code) {
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
  }
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.code == no_character)
      result += "\uFFFD";
    else if (is_harmful(character.code) && kept.find(text.front()) == std::string_view::npos)
      result += visible(character.code);
    else
      result += text.substr(0, character.bytes);
    text.remove_prefix(character.bytes);
  }
  return result;
}

// A list of findings may be as long as the file that it is about.
std::string shortened(std::string_view text) {
  std::string kept;
  for (std::size_t lines = 0; !text.empty(); ++lines) {
    if (lines == max_lines)
      return kept + fmt::format("... and {} more lines",
                                std::count(text.begin(), text.end(), '\n') + (text.back() == '\n' ? 0 : 1));
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.size() > max_line_bytes) {
      std::size_t bytes = max_line_bytes;
      while (bytes > 0 && is_continuation(line[bytes]))
        --bytes;
      kept += fmt::format("{} ... and {} more bytes", line.substr(0, bytes), line.size() - bytes);
    } else {
      kept += line;
    }
    if (end == text.size())
      break;
    kept += '\n';
    text.remove_prefix(end + 1);
  }
  return kept;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.code == no_character)
      return false;
    text.remove_prefix(character.bytes);
  }
  return true;
}

std::string printable_text(std::string_view text) { return printable(text, "\n\t"); }

std::string printable_line(std::string_view text) { return printable(text, ""); }

std::string printable_block(std::string_view text, std::size_t columns) {
  std::string block = printable(shortened(text), "\n");
  for (std::size_t line = block.find('\n'); line != std::string::npos; line = block.find('\n', line + 1)) {
    const std::size_t begin = std::min(block.find_first_not_of(' ', line + 1), block.size());
    const std::size_t spaces = begin - line - 1;
    if (spaces < columns && begin < block.size())  // the end of a text begins no line
      block.insert(line + 1, columns - spaces, ' ');
  }
  return block;
}

std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const char byte = text[text.size() - back];
    if (!is_continuation(byte))
      return bytes_of_character(static_cast<unsigned char>(byte)) > back ? back : 0;
  }
  return 0;
}

}  // namespace espalier
