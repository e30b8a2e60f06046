// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

// Names from files and command lines, as what is written in a markup language: text, whatever they hold.

namespace espalier {

/// For text and attributes: & < > " and ' as entities; control characters, and bytes that are no UTF-8, as U+FFFD.
std::string html_escaped(std::string_view text);

/// For a sentence, heading or table cell of Markdown, HTML in it included: one line that shows the text, with the same
/// replacements. An underscore inside a word means nothing there, and stays.
std::string markdown_escaped(std::string_view text);

}  // namespace espalier
