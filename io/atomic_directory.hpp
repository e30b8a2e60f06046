// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/file.hpp"

namespace espalier {

/// The suffix of directories that are being written or removed; what carries it may be deleted at any time.
inline constexpr const char* partial_suffix = ".partial";

/// The suffix of a complete directory while it is being replaced where the file system cannot exchange two names.
inline constexpr const char* replaced_suffix = ".replaced.partial";

/// Creates PATH.partial, empty, after removing what an earlier save that was killed left behind in the same
/// parent; what such a save had moved away to replace gets its name back. Returns the path.
Path begin_directory(const Path& path);

/// Makes PATH.partial durable and visible as PATH, in one step that also replaces an older PATH.
void publish_directory(const Path& path);

/// What NAME.replaced.partial has to be called again, if a kill came between its two renames; else empty.
Path replaced_original(const Path& path);

/// Removes a directory so that a kill in between leaves either all of it or a .partial.
void remove_directory(const Path& path);

namespace impl {
/// publish_directory() where an older one is in the way and the file system cannot exchange two names.
void replace_by_two_renames(const Path& path);
}  // namespace impl

}  // namespace espalier
