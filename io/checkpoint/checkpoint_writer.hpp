// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_manifest.hpp"
#include "io/checkpoint/checkpoint_names.hpp"

namespace espalier {

/// Where the blocks of one writer go. Neighbours may share a file: they append to it one after the other, each when the
/// one before has closed it, so no data pass through another rank.
struct ShardSlot {
  std::string file = shard_name(0);
  Index first_block = 0;  ///< blocks that earlier turns have put into the file
  int turn = 0;           ///< 0 makes the file
  bool completes = true;  ///< the last turn of the file, which takes its checksum
};

/// The slot of a writer with a file of its own.
ShardSlot own_file(int writer);

/// The slot of writer w when rank r has num_blocks[r] blocks to write (none: it takes no turn) and each
/// `ranks_per_file` consecutive ranks share the file that is named after the first of them.
ShardSlot shard_slot(std::span<const Index> num_blocks, int writer, Index ranks_per_file);

/// Turns of the file that needs most.
int num_turns(std::span<const Index> num_blocks, Index ranks_per_file);

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

// Saving: begin (rank 0), write_shard (every writer), publish (rank 0).
// The directory DIR/step-00000100 appears by one rename, complete; until then it is step-00000100.OWNER.partial.

/// checkpoints/step-00000100
Path checkpoint_path(const Path& directory, Index step);

/// Makes the partial directory, and frees space by removing leftovers of killed saves of this owner. Returns its path.
/// Throws Error(write) when there is no space for `bytes`, what all writers together are going to write, with advice on
/// what is kept.
Path begin_checkpoint(const Path& directory, Index step, Index bytes = 0, const KeptCheckpoints& kept = {},
                      const std::string& owner = {});

/// What a writer is going to write where, without the extents and the checksums.
std::vector<StoredBlock> plan_shard(const ShardSlot& slot, std::span<const TensorBlock> blocks);

/// Writes the blocks into their file in the partial directory, closed and on disk. Calls no MPI: any thread may.
/// @throws Error (write) with the file removed, also when it was asked to stop between two blocks.
ShardRecord write_shard(const Path& partial, const ShardSlot& slot, std::span<const TensorBlock> blocks,
                        const std::stop_token& stop = {});

/// Proves that each element has one writer, writes the manifest and publishes. An older checkpoint of the step is
/// replaced where this owner wrote it, stays where another did, and is set aside where that is unknown or other
/// files lie in it. Returns the checkpoint's path.
Path publish_checkpoint(const Path& directory, const CheckpointInfo& info, std::span<const ShardRecord> shards,
                        const std::optional<StoredFile>& index = {});

/// Removes the partial directory of a save that failed somewhere.
void abandon_checkpoint(const Path& directory, Index step, const std::string& owner) noexcept;

/// All three with one writer.
Path save_checkpoint(const Path& directory, const CheckpointInfo& info, std::span<const TensorBlock> blocks);

}  // namespace espalier
