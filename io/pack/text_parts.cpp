// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/text_parts.hpp"

#include "core/printable_text.hpp"
#include "io/strings.hpp"

namespace espalier {
namespace {

constexpr std::size_t split_part_bytes = std::size_t{1} << 20;

bool is_white_space(char c) { return ascii_white_space.find(c) != std::string_view::npos; }

// Where a text is cut of which more follows: behind the end of a line. Best is an end of a line with no white space
// beside it: few tokenizers have words that reach over it. A character is never cut.
std::size_t cut_of(std::string_view text) {
  for (std::size_t at = text.size() - 1; at > text.size() / 2; --at)
    if (text[at - 1] == '\n' && !is_white_space(text[at - 2]) && !is_white_space(text[at]))
      return at;
  const std::size_t line_end = text.rfind('\n');
  return line_end == std::string::npos ? text.size() - unfinished_bytes(text) : line_end + 1;
}

}  // namespace

std::size_t max_part_bytes(const Tokenizer& tokenizer) {
  return tokenizer.can_split_anywhere() ? split_part_bytes : whole_document_bytes;
}

std::size_t part_bytes(const Tokenizer& tokenizer, std::string_view text, bool has_more) {
  if (!has_more)
    return text.size();
  return tokenizer.can_split_anywhere() ? text.size() - unfinished_bytes(text) : cut_of(text);
}

}  // namespace espalier
