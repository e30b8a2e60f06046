// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace espalier {

/// `~` and `~/...` with the home directory in place of `~`, as a shell has it; any other text as it is. Shells leave it
/// alone behind `--output=` and `run.directory=`.
/// @throws Error (usage) for `~name/...`, the home of another, for `$...`, and where HOME says nothing
std::string expand_home(const std::string& path);

}  // namespace espalier
