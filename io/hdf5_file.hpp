// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "io/file.hpp"
#include "io/write_behind.hpp"

namespace espalier {

/// A contiguous dataset as it lies in its file.
struct DatasetPlace {
  Index offset = 0;  ///< of the first byte in the file
  Index bytes = 0;
};

/// A new HDF5 file of plain contiguous datasets, written by HDF5's serial driver with checksummed metadata
/// (format V110). Any thread may use these two classes: HDF5 is not thread-safe where sites build it, so one call waits
/// for the other.
class Hdf5Writer {
 public:
  enum class Open { create, append };

  /// @throws Error (write) if a file to create exists or cannot be made. A symbolic link is never
  /// followed.
  explicit Hdf5Writer(const Path& path, Open open = Open::create);
  Hdf5Writer(const Hdf5Writer&) = delete;
  ~Hdf5Writer();

  /// Writes a dataset of that shape; groups in its name ("a/b") are made on the way.
  DatasetPlace write(const std::string& name, ScalarType type, const std::vector<Index>& shape, const void* data);

  /// Of all datasets in the file.
  std::vector<DatasetPlace> places() const;

  /// Closes and makes the file durable: HDF5 itself never calls fsync.
  void close();

 private:
  void discard() noexcept;

  Path path_;
  WriteBehind write_behind_;
  std::int64_t file_ = -1;  ///< negative: closed, or tried to
};

/// Opens a file that may be hostile: only datasets reached by hard links, contiguous, inside the file,
/// without filters and of the expected type and shape are read. @throws Error (checkpoint).
class Hdf5Reader {
 public:
  explicit Hdf5Reader(const Path& path);
  Hdf5Reader(const Hdf5Reader&) = delete;
  ~Hdf5Reader();

  /// Reads the whole dataset, which must lie at `place`.
  void read(const std::string& name, ScalarType type, const std::vector<Index>& shape, DatasetPlace place,
            void* destination) const;

 private:
  [[noreturn]] void refuse(const std::string& dataset, std::string what, std::string got, std::string wanted) const;

  Path path_;
  std::int64_t file_ = -1;
};

/// HDF5's version, as "1.10.8".
std::string hdf5_version();

}  // namespace espalier
