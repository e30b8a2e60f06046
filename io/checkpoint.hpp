// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/checkpoint_manifest.hpp"
#include "io/shard_place.hpp"

namespace espalier {

/// A box of a logical tensor in host memory, contiguous and row-major.
struct TensorBlock {
  std::string name;  ///< of the logical tensor, the same on every layout; printable, '/' makes groups
  ScalarType type = ScalarType::fp32;
  std::vector<Index> global_shape;
  std::vector<Index> start;
  std::vector<Index> count;
  const void* data = nullptr;
};

/// A block that is its whole tensor.
TensorBlock whole_tensor(std::string name, ScalarType type, std::vector<Index> shape, const void* data);

// ---- Saving: begin (rank 0), write_shard (every writer), publish (rank 0) ----
// The directory DIR/step-00000100 appears by one rename, complete; until then it is step-00000100.partial.

/// checkpoints/step-00000100
Path checkpoint_path(const Path& directory, Index step);

/// Makes the partial directory, and room by removing leftovers of killed saves. Returns its path. Throws Error(write)
/// when there is no room for `bytes`, what all writers together are going to write.
Path begin_checkpoint(const Path& directory, Index step, Index bytes = 0);

/// What a writer is going to write where, without the places in the file and the checksums.
std::vector<StoredBlock> plan_shard(const ShardPlace& place, std::span<const TensorBlock> blocks);

/// Writes the blocks into their file in the partial directory, closed and on disk. Calls no MPI: any thread may.
/// @throws Error (write) with the file removed, also when it was asked to stop between two blocks.
ShardRecord write_shard(const Path& partial, const ShardPlace& place, std::span<const TensorBlock> blocks,
                        const std::stop_token& stop = {});

/// Proves that each element has one writer, writes the manifest and publishes. Returns the checkpoint's path.
Path publish_checkpoint(const Path& directory, const CheckpointInfo& info, std::span<const ShardRecord> shards,
                        const std::optional<StoredFile>& index = {});

/// Removes the partial directory of a save that failed somewhere.
void abandon_checkpoint(const Path& directory, Index step) noexcept;

/// All three with one writer.
Path save_checkpoint(const Path& directory, const CheckpointInfo& info, std::span<const TensorBlock> blocks);

// ---- Loading ----

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
/// block that is touched is read and hashed as a whole, and so are the parts of a file that are no data,
/// before HDF5 sees them.
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
  const std::vector<StoredBlock>& blocks() const;
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

  /// Reads every byte of every file against its checksum. Returns the bytes read.
  Index verify() const;

 private:
  struct Data;
  std::unique_ptr<Data> data_;
};

// ---- The directory of checkpoints ----

struct CheckpointEntry {
  Path path;
  Index step = 0;
  bool complete = false;
  bool unfinished = false;  ///< left by a save or a removal that was killed: it never counted, or no longer does
  std::string reason = {};  ///< why it is not complete
};

/// Newest first, complete or not; none where there is no such directory. Judges manifests and sizes; checksums of data
/// are read by loading or verify(). @throws Error (checkpoint) when the directory is there and cannot be listed.
std::vector<CheckpointEntry> find_checkpoints(const Path& directory);

/// What a user may name where a checkpoint is wanted: a checkpoint, or the directory of a run, which stands for its
/// newest complete one. @throws Error (checkpoint) that names what is there and is not complete.
Path resolve_checkpoint(const Path& given);

/// Which complete checkpoints stay.
struct KeptCheckpoints {
  Index last = 2;   ///< so many of the newest, at least 1
  Index every = 0;  ///< and all whose step is a multiple of it; 0: none
};

/// Removes the complete checkpoints that need not be kept, never an incomplete one. Those of steps after `newest`, the
/// one just saved, neither count nor go: they are not of this run's past.
void prune_checkpoints(const Path& directory, KeptCheckpoints kept, Index newest = std::numeric_limits<Index>::max());

/// Renames all checkpoints of later steps to step-XXXXXXXX.abandoned, which is never taken for a checkpoint: a run that
/// resumes from an older one must not find them when it starts again. Nothing is deleted. @returns their new paths.
std::vector<Path> set_aside_checkpoints_after(const Path& directory, Index step);

}  // namespace espalier
