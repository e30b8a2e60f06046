// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/file.hpp"

namespace espalier {

/// The suffix of directories that are being written or removed; what carries it may be deleted at any time.
inline constexpr const char* partial_suffix = ".partial";

/// Creates PATH.partial, empty, after removing what an earlier save that was killed left behind in the same
/// parent. Returns its path.
Path begin_directory(const Path& path);

/// Makes PATH.partial durable and visible as PATH, in one step that also replaces an older PATH.
void publish_directory(const Path& path);

/// Removes a directory so that a kill in between leaves either all of it or a .partial.
void remove_directory(const Path& path);

}  // namespace espalier
