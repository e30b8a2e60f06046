// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_writer.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// A sharded save of DIRECTORY/step-XXXXXXXX: each rank that has blocks writes them to its own file, or to one that it
/// shares with its neighbours. It has three parts: begin, write every turn, publish. The second may run on a thread
/// during training. MPI carries names and checksums only, never data.
class ShardedSave {
 public:
  /// Before the first byte rank 0 proves that every element of every tensor has exactly one writer; `tensors` names
  /// those that this rank knows of, so that one that nobody writes is found, too. The blocks' data must stay as they
  /// are until the last turn is over. `kept`: those that stay, for advice where there is no space. Collective. @throws
  /// Error on every rank, when any failed.
  ShardedSave(const Path& directory, CheckpointInfo info, std::vector<TensorBlock> blocks,
              const std::vector<std::string>& tensors, const Communicator& world, Index ranks_per_file = 1,
              const KeptCheckpoints& kept = {});
  /// Removes the save, unless it was published.
  ~ShardedSave();
  ShardedSave(const ShardedSave&) = delete;
  ShardedSave& operator=(const ShardedSave&) = delete;

  /// A turn may begin when the one before has ended on all ranks.
  int num_turns() const { return num_turns_; }

  /// What this rank writes in a turn, if anything. Calls no MPI: any thread may. @throws Error (write).
  void write(int turn, const std::stop_token& stop = {});

  /// When all turns have succeeded on all ranks. Collective. @returns the checkpoint's path, on every rank, when it is
  /// complete and on disk. @throws Error on every rank, when any failed.
  Path publish();

 private:
  Path directory_;
  CheckpointInfo info_;
  std::vector<TensorBlock> blocks_;
  const Communicator* world_;
  bool is_root_;
  bool published_ = false;
  ShardSlot slot_;
  int num_turns_ = 0;
  std::vector<StoredBlock> plan_;  // of all ranks, on rank 0
  ShardRecord record_;
  StoredFile index_;  // on rank 0
};

/// All parts of it. @throws Error on every rank, with the reason of the lowest rank that failed, when any did; then
/// there is no checkpoint. Collective.
Path save_sharded(const Path& directory, const CheckpointInfo& info, std::span<const TensorBlock> blocks,
                  const std::vector<std::string>& tensors, const Communicator& world, Index ranks_per_file = 1,
                  const KeptCheckpoints& kept = {});

}  // namespace espalier
