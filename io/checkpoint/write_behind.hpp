// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/scalars.hpp"
#include "io/file.hpp"

namespace espalier {

/// Lets the disk take a large file while it is written, and the page cache forget what lies there: else all of it waits
/// for the fsync at the end, in memory that training or the next file could use.
class WriteBehind {
 public:
  explicit WriteBehind(Path path) : path_(std::move(path)) {}

  /// The file's bytes up to `end` are in the hands of the system. Larger with each call.
  /// @throws Error (write) if the disk did not take earlier ones: the kernel tells that once, so no fsync would.
  void wrote(int descriptor, Index end);

 private:
  Path path_;
  Index begun_ = 0;  ///< bytes that the disk was asked to take
  Index taken_ = 0;  ///< bytes that it has taken
};

}  // namespace espalier
