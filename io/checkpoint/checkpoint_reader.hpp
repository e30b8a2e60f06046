// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_manifest.hpp"

namespace espalier {

struct TensorInfo {
  std::string name;
  ScalarType type = ScalarType::fp32;
  std::vector<Index> global_shape;
};

/// A box of a tensor that is wanted, and where to: contiguous, converted to `type`.
struct WantedBox {
  std::string name;
  std::vector<Index> start;
  std::vector<Index> count;
  ScalarType type = ScalarType::fp32;
  void* destination = nullptr;
};

/// Reads any box of any tensor, whatever layout wrote it. Trusts the manifest's checksums only: every stored
/// block that is touched is read and hashed as a whole, and so are the parts of a file that are no data. The manifest
/// says where the bytes of a block lie, so HDF5 reads nothing here: a forged file could harm it.
class CheckpointReader {
 public:
  /// Checks the manifest and the files' kinds and sizes. Every error of this class is Error(checkpoint).
  explicit CheckpointReader(const Path& directory);
  CheckpointReader(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const Path& path() const;
  const CheckpointInfo& info() const;
  const nlohmann::json& state() const { return info().state; }
  const std::vector<StoredFile>& files() const;
  std::vector<TensorInfo> tensors() const;  ///< sorted by name
  bool contains(const std::string& name) const;
  const TensorInfo& tensor(const std::string& name) const;

  /// Reads the boxes file by file, each stored block once. After an error the destinations' content is unspecified.
  void read(std::span<const WantedBox> boxes) const;

  /// One box.
  void read(const std::string& name, const std::vector<Index>& start, const std::vector<Index>& count, ScalarType type,
            void* destination) const;

  /// The whole tensor, which must have this shape.
  void read(const std::string& name, const std::vector<Index>& global_shape, ScalarType type, void* destination) const;

  /// Reads every byte of every file against its checksum, and every number: all must be finite. Returns the bytes read.
  Index verify() const;

 private:
  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace espalier
