// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "io/file.hpp"

namespace espalier {

/// Lets the disk take a large file while it is written, and the page cache forget what lies there: else all of it waits
/// for the fsync at the end, in memory that training or the next file could use.
class WriteBehind {
 public:
  explicit WriteBehind(Path path) : path_(std::move(path)) {}

  /// The file's bytes up to `end` are in the hands of the system. Larger with each call.
  /// @throws Error (write) if the disk did not take earlier ones: the kernel reports that once, so no fsync would.
  void wrote(int descriptor, Index end);

 private:
  Path path_;
  Index begun_ = 0;  ///< bytes that the disk was asked to take
  Index taken_ = 0;  ///< bytes that it has taken
};

/// A contiguous dataset as it lies in its file.
struct DatasetExtent {
  Index offset = 0;  ///< of the first byte in the file
  Index bytes = 0;
};

/// A new HDF5 file of plain contiguous datasets, written by HDF5's serial driver with checksummed metadata
/// (format V110). Any thread may use it: HDF5 is not thread-safe where sites build it, so one call waits for the other.
/// Nothing of Espalier reads a file through HDF5, whose versions in use are harmed by files that were forged.
class Hdf5Writer {
 public:
  enum class Open { create, append };

  /// @throws Error (write) if a file to create exists or cannot be made. A symbolic link is never
  /// followed.
  explicit Hdf5Writer(const Path& path, Open open = Open::create);
  Hdf5Writer(const Hdf5Writer&) = delete;
  ~Hdf5Writer();

  /// Writes a dataset of that shape; groups in its name ("a/b") are made on the way.
  DatasetExtent write(const std::string& name, ScalarType type, const std::vector<Index>& shape, const void* data);

  /// Of all datasets in the file.
  std::vector<DatasetExtent> extents() const;

  /// Closes and makes the file durable: HDF5 itself never calls fsync.
  void close();

 private:
  void discard() noexcept;

  Path path_;
  WriteBehind write_behind_;
  std::int64_t file_ = -1;  ///< negative: closed, or tried to
};

/// HDF5's version, as "1.10.8".
std::string hdf5_version();

}  // namespace espalier
