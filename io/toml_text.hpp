// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to the config files of this room: what is shared on top of toml++.

#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace espalier {

/// @param kind what the text is: "config". @throws Error (usage) with file, line and column, and the line.
toml::table parse_toml(std::string_view text, const std::string& name, const std::string& kind = "config");

/// A table whose only key `value` holds what the text means; text that is no TOML value is a string.
toml::table parse_toml_value(const std::string& text);

/// A value as one line of TOML.
std::string to_toml_text(const toml::node& node);

/// "an integer", "a string", ...
std::string article(const toml::node& node);

}  // namespace espalier
