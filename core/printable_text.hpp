// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Text of unknown origin (names of files, what stands in them, values of options) on its way to a terminal.

namespace espalier {

/// Is all of it UTF-8, as RFC 3629 has it: no surrogates, and no form that is longer than needed?
bool is_utf8(std::string_view text);

/// `text` with U+FFFD for bytes that are not UTF-8, and with visible escapes (\x1b, \u202e) for characters that move
/// the cursor, change colours or turn the direction of writing. Newlines and tabs stay.
std::string printable_text(std::string_view text);

/// The same on one line: a newline is shown as \n, a tab as \t.
std::string printable_line(std::string_view text);

/// printable_text() for messages: a tab is shown as \t, and the second and later lines begin with at least `columns`
/// spaces, so that none of them can pass for a line that stands further left. Of many lines the first `max_lines`
/// are shown, of a long line the first `max_line_bytes`, and how much there is beyond them.
inline constexpr std::size_t max_lines = 60;
inline constexpr std::size_t max_line_bytes = 4000;
std::string printable_block(std::string_view text, std::size_t columns);

/// How many bytes at the end of `text` begin a character that is not complete yet.
std::size_t unfinished_bytes(std::string_view text);

}  // namespace espalier
