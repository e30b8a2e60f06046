// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "io/file.hpp"

namespace espalier {

/// The first name that is free of NAME.abandoned, NAME.abandoned-2 and so on. `extension` stays at the end of the name:
/// metrics.jsonl becomes metrics.abandoned.jsonl.
Path name_aside(const Path& path, const std::string& extension = "");

/// Renames what a run no longer counts as its own to name_aside(): nothing is deleted.
/// @returns the new path. @throws Error (write).
Path set_aside(const Path& path, const std::string& extension = "");

/// The same where there is something: a file or a directory that is not empty. An empty path: there is not.
Path set_aside_if_any(const Path& path, const std::string& extension = "");

}  // namespace espalier
