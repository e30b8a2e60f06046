// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to the config files of this room: what was probably meant by a value of another type.

#include <toml++/toml.h>

#include <optional>
#include <string>

namespace espalier {

/// A number as it is, integers as large as they come; nothing for what is no number.
std::optional<double> number_of(const toml::node& node);

/// "; write 100000" for 1e5, "1e5", "100k" or "100_000.0"; empty where no whole number can be meant.
std::string integer_hint(const toml::node& node);

/// "; write 0.5" for "0.5" or ".5"
std::string real_hint(const toml::node& node);

/// "; write true" for "True", "yes", "on" or 1
std::string boolean_hint(const toml::node& node);

}  // namespace espalier
