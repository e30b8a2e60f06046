// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to the config files of this module: what is shared on top of toml++.

#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace espalier {

/// @param kind what the text is: "config". @throws Error (usage) with file, line and column, and the line.
toml::table parse_toml(std::string_view text, const std::string& name, const std::string& kind = "config");

/// A value as one line of TOML.
std::string to_toml_text(const toml::node& node);

/// "an integer", "a string", ...
std::string article(const toml::node& node);

}  // namespace espalier
