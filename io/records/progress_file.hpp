// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "io/file.hpp"

namespace espalier {

/// RUN/state/rank-00003.position: a few bytes that a rank keeps current by writing to memory, and that outlive it,
/// however it ends: the page belongs to the operating system. Until the machine itself fails, no sync is needed.
class ProgressFile {
 public:
  /// Creates the file, of `size` bytes that start as zeros, in place of an older one; what already maps or reads the
  /// older one keeps it. The directory must exist. Throws Error(write).
  ProgressFile(const Path& directory, int rank, std::size_t size);
  ProgressFile(const ProgressFile&) = delete;
  ProgressFile& operator=(const ProgressFile&) = delete;
  ~ProgressFile();  ///< the file stays: only remove() says that all went well

  void* data() const { return data_; }
  std::size_t size() const { return size_; }

  /// The same bytes as an object, which must be all of them.
  template <class T>
  T& as() const {
    static_assert(std::is_trivially_copyable_v<T>, "another process reads the bytes");
    ESPALIER_ASSERT(sizeof(T) == size_, "espalier::ProgressFile::as: a type of another size");
    return *static_cast<T*>(data_);
  }

  /// At a clean end.
  void remove();

 private:
  Path path_;
  void* mapping_ = nullptr;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// What a rank left.
struct StoredProgress {
  int rank = 0;
  std::string bytes;

  /// As an object of the type that was written; none if it has another size.
  template <class T>
  std::optional<T> as() const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes.size() != sizeof(T))
      return std::nullopt;
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
};

/// All progress files of the directory, by rank. Links, torn files and files of another kind are left out.
std::vector<StoredProgress> read_progress_files(const Path& directory);

/// Removes what read_progress_files() finds, so that an older, larger job leaves nothing to a new one.
void remove_progress_files(const Path& directory);

}  // namespace espalier
