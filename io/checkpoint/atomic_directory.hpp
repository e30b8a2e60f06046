// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "io/file.hpp"

namespace espalier {

// The place of the checkpoints may be a link to one where other things lie, too. So a directory that is being written
// or removed bears the id of the run that does, its owner, and no run removes or renames what another has made.

/// The suffixes of directories that are being written or removed, and of complete ones that are being replaced where
/// the file system cannot exchange two names.
inline constexpr const char* partial_suffix = ".partial";
inline constexpr const char* replaced_suffix = ".replaced.partial";

/// The id of a new run: 16 hexadecimal digits, random.
std::string new_owner();
bool is_owner(const std::string& text);

/// "step-00000100" of "step-00000100.OWNER"; other names are returned as they are.
std::string without_owner(const std::string& name);

/// PATH.OWNER.partial, also of PATH.OWNER; without an owner PATH.partial.
Path partial_path(const Path& path, const std::string& owner);

/// What a name with one of the suffixes is made of. Nothing for other names.
struct PartialName {
  std::string original;
  std::string owner;  ///< may be empty
  bool replaced = false;
};
std::optional<PartialName> parse_partial_name(const std::string& name);

/// Creates the partial directory of PATH, empty, after removing what an earlier save of this owner that was killed left
/// behind in the same parent; what such a save had moved away to replace gets its name back. An owner made the parent
/// of the parent before. Returns the path.
Path begin_directory(const Path& path, const std::string& owner);

/// Makes the partial directory durable and visible as PATH, in one step that also replaces an older PATH, if it
/// may be replaced; if not, that is set aside.
void publish_directory(const Path& path, const std::string& owner, bool may_replace);

/// What a replaced directory has to be called again, if a kill came between its two renames; else empty.
Path replaced_original(const Path& path);

/// Are there only files of a checkpoint in the directory?
bool holds_only_checkpoint(const Path& path);

/// Removes a directory so that a kill in between leaves either all of it or a partial one. Files that are none of a
/// checkpoint stay, with their directory.
void remove_directory(const Path& path, const std::string& owner);

/// The partial directory of PATH only, whatever its state.
void remove_partial_directory(const Path& path, const std::string& owner);

namespace impl {
/// publish_directory() where an older one is in the way and the file system cannot exchange two names.
void replace_by_two_renames(const Path& path, const std::string& owner);
}  // namespace impl

}  // namespace espalier
