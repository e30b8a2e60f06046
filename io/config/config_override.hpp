// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to the config files of this room.

#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace espalier {

/// "section.key=value" of a command line.
struct ConfigOverride {
  std::string section;
  std::string key;
  std::string text;   ///< the value as it was typed
  toml::table table;  ///< its only key `value` holds what the text means
};

/// The value is TOML, or a text that needs no quotes: one that does not begin with a quote, a bracket or a brace.
/// @throws std::invalid_argument that says what is wrong, and how to write it
ConfigOverride parse_override(const std::string& given);

/// `a, b` or `[a, b]` as a shell takes the list that was meant: 'data.train=["a", "b"]'
std::string list_spelling(std::string_view name, std::string_view text);

}  // namespace espalier
