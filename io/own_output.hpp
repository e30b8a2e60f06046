// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "io/file.hpp"

namespace espalier {

/// How a kind of file is known as written by Espalier.
struct OutputMark {
  std::string_view kind;       ///< in messages: "a memo of `espalier plan`"
  std::string_view begin;      ///< what it begins with
  std::string_view part = {};  ///< what it holds as well
};

/// Where a path leads to: symbolic links are followed, also to what does not exist yet.
Path followed(const Path& path);

/// Is this a regular file with the mark, itself or by links?
bool is_own_output(const Path& path, const OutputMark& mark);

/// Where this output may be written: nothing stands there, an empty file, or one of the same kind. Ask before the work
/// whose result it is.
/// @throws Error (write) for anything else: it is somebody's
void require_own_output(const Path& path, const OutputMark& mark);

/// Writes `text`, which has the mark, whole or not at all; the file that a link leads to is replaced, not the link.
/// @throws Error (write) as require_own_output()
void write_output(const Path& path, const OutputMark& mark, std::string_view text);

}  // namespace espalier
