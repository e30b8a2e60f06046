// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "io/file.hpp"

namespace espalier {

/// @throws Error (usage) unless the directory is new or empty, so that nothing is replaced or mixed
void require_new_directory(const Path& directory);

/// A directory that is filled under the name DIRECTORY.espalier.partial, and gets its own name when it is complete.
/// What a killed process leaves under that name the next one replaces. Locked meanwhile: one process fills it at a
/// time.
class PartialDirectory {
 public:
  /// Creates it, empty, and its parents. An empty directory that has the name is taken.
  /// @throws Error (usage) as require_new_directory(); (write) also while another process fills it
  explicit PartialDirectory(const Path& directory);
  PartialDirectory(const PartialDirectory&) = delete;
  PartialDirectory& operator=(const PartialDirectory&) = delete;

  /// Unless it was published, removes it with all that is in it, and leaves what stood there before.
  ~PartialDirectory();

  const Path& path() const { return partial_; }  ///< where to write until publish()

  /// Makes it durable and gives it its name.
  void publish();

 private:
  void create();
  void remove() noexcept;

  Path directory_;  // without links
  Path partial_;
  Path current_;            // one of both: where it lies now
  bool was_there_ = false;  // directory_, empty
  bool is_ours_ = false;    // partial_
  bool is_published_ = false;
  std::vector<Path> parents_;  // that were created, the outermost last
  FileDescriptor lock_;
};

}  // namespace espalier
