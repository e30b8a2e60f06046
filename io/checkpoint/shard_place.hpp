// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "core/scalars.hpp"

namespace espalier {

/// Where the blocks of one writer go. Neighbours may share a file: they append to it one after the other, each when the
/// one before has closed it, so no data pass through another rank.
struct ShardPlace {
  std::string file = "rank-00000.h5";
  Index first_block = 0;  ///< blocks that earlier turns have put into the file
  int turn = 0;           ///< 0 makes the file
  bool completes = true;  ///< the last turn of the file, which takes its checksum
};

/// The place of a writer with a file of its own.
ShardPlace own_file(int writer);

/// The place of writer w when rank r has num_blocks[r] blocks to write (none: it takes no turn) and each
/// `ranks_per_file` consecutive ranks share the file that is named after the first of them.
ShardPlace shard_place(std::span<const Index> num_blocks, int writer, Index ranks_per_file);

/// Turns of the file that needs most.
int num_turns(std::span<const Index> num_blocks, Index ranks_per_file);

}  // namespace espalier
