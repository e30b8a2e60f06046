// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text_parts.hpp"

#include "core/printable_text.hpp"

namespace espalier {
namespace {

constexpr std::size_t local_part_bytes = std::size_t{1} << 20;

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Where a text that goes on is cut: behind a line, if possible one whose end stands alone between characters that are
// no spaces, so that no word of most tokenizers goes over the cut. Never within a character.
std::size_t cut_of(std::string_view text) {
  for (std::size_t at = text.size() - 1; at > text.size() / 2; --at)
    if (text[at - 1] == '\n' && !is_blank(text[at - 2]) && !is_blank(text[at]))
      return at;
  const std::size_t line_end = text.rfind('\n');
  return line_end == std::string::npos ? text.size() - unfinished_bytes(text) : line_end + 1;
}

}  // namespace

std::size_t most_part_bytes(const Tokenizer& tokenizer) {
  return tokenizer.is_local() ? local_part_bytes : whole_document_bytes;
}

std::size_t part_bytes(const Tokenizer& tokenizer, std::string_view text, bool goes_on) {
  if (!goes_on)
    return text.size();
  return tokenizer.is_local() ? text.size() - unfinished_bytes(text) : cut_of(text);
}

}  // namespace espalier
