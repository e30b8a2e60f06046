// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace espalier {

inline constexpr std::string_view ascii_white_space = " \t\n\v\f\r";
inline constexpr std::string_view json_white_space = " \t\n\r";  ///< RFC 8259

/// std::string::contains() of C++23.
inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Of ASCII.
inline std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Without blanks and tabs at its ends.
inline std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string()
                                         : std::string(text.substr(begin, text.find_last_not_of(" \t") + 1 - begin));
}

}  // namespace espalier
