// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/checkpoint.hpp"
#include "parallel/communicator.hpp"

namespace espalier {

/// Publishes DIRECTORY/step-XXXXXXXX from what all ranks hold: each rank that has blocks writes them to a file of its
/// own, the others nothing. Before the first byte rank 0 proves that every element of every tensor has exactly one
/// writer; `tensors` names those that this rank knows of, so that one that nobody writes is found, too. Collective.
/// @returns the checkpoint's path, on every rank, when it is complete and on disk.
/// @throws Error on every rank, with the reason of the lowest rank that failed, when any did; then there is no
/// checkpoint. MPI carries names and checksums only, never data.
Path save_sharded(const Path& directory, const CheckpointInfo& info, std::span<const TensorBlock> blocks,
                  const std::vector<std::string>& tensors, const Communicator& world);

}  // namespace espalier
