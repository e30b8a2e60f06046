// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "io/checkpoint/checkpoint_manifest.hpp"

namespace espalier {

/// Writes index.h5 into the partial directory, closed and on disk: each logical tensor as one HDF5 virtual dataset of
/// its name, put together from the blocks, and the state as text. For people: any HDF5 tool reads the checkpoint as if
/// one process had written it. The loader never opens it. An element whose file is gone reads as NaN; 16-bit types are
/// their bits, as in the shards. Calls no MPI: any thread may.
/// @param blocks as plan_shard() gives them, of all writers. @throws Error (write).
StoredFile write_index(const Path& partial, const CheckpointInfo& info, std::span<const StoredBlock> blocks);

}  // namespace espalier
