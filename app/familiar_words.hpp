// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace espalier {

// What people write who come from other programs, and our word for it.

/// What to write instead of a command that does not exist ("import", "tokenize"); empty: nothing comes to mind.
std::string hint_for_command(const std::string& word);

/// What to write instead of an option that does not exist: "--steps=5" is run.steps=5, and so is every key of a config
/// by its last word. Empty: nothing comes to mind.
std::string hint_for_option(const std::string& option);

}  // namespace espalier
