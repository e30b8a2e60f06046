// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/scalars.hpp"
#include "io/file.hpp"

namespace espalier {

/// A temporary file without a name, for what is too much for memory. It takes no space until something is appended.
/// Every error is Error(write).
class SpoolFile {
 public:
  explicit SpoolFile(Path directory) : directory_(std::move(directory)) {}
  void append(std::string_view bytes);
  void read_at(Index offset, char* data, std::size_t size) const;
  void clear();
  Index size() const { return size_; }

 private:
  Path directory_;
  FileDescriptor file_;
  Index size_ = 0;
};

}  // namespace espalier
