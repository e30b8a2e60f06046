// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/file.hpp"

namespace espalier {

// Where a run may lie: it must never write over what it did not make.

/// @throws Error (usage) for directories of the system, such as / and /tmp, and the home of the user.
void require_allowed_location(const Path& run);

/// @throws Error (usage) where a link stands at a path that must be the run's own.
void require_no_link(const Path& path);

/// Of a directory that exists. `is_known`: it has the record or the id of a run. @throws Error (usage) where files
/// would be written over that no run has made, where what must be the run's own is a link, and where the link to its
/// checkpoints leads nowhere.
void require_only_files_of_a_run(const Path& run, bool is_known);

/// Makes and removes a directory in each directory that the run will write to and that exists: a scratch file system
/// may be read-only, and permissions alone do not tell. @throws Error (write) that names the first that refuses.
void require_writable_directories(const Path& run, const std::string& id);

}  // namespace espalier
