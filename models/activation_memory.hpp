// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "models/block_shape.hpp"
#include "models/layer_partition.hpp"
#include "models/microbatch.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// What the chunks of a stage keep, by its schedule.
ActivationMemory activation_memory(const PipelineSchedule& schedule, const std::vector<ChunkLayers>& chunks,
                                   bool separate_documents = false);

/// The same for schedules without a list.
ActivationMemory activation_memory(const PipelineShape& shape, int stage, const std::vector<ChunkLayers>& chunks,
                                   bool separate_documents = false);

/// Bytes of the arrays that the layers of a rank allocate for one micro-batch, recorded without allocating.
struct ActivationRecording {
  struct OfBlock {
    Index kept = 0;        ///< from forward to backward, the output included
    Index recomputed = 0;  ///< of saved arrays that are not kept
    Index read_later = 0;  ///< of those, what backward_weight reads after backward_input has recomputed them
  };
  std::array<OfBlock, 3> block = {};  ///< by Recompute
  Index gradients = 0;                ///< of a block, between the two parts of backward
  Index stream = 0;                   ///< one array of the residual stream, (R, C)
  Index full = 0;                     ///< the full form of it, (N, C), where it is needed
  Index rotary = 0;                   ///< the table of rotary positions
  Index tokens = 0;                   ///< token ids, of inputs or of targets
  Index positions = 0;                ///< of tokens in separate documents
  Index embedding_scratch = 0;
  Index head_scratch = 0;
  Index head_saved = 0;
};
/// @param residual type of the residual stream: `compute`, or the state type
ActivationRecording record_activations(const BlockShape& shape, ScalarType compute, ScalarType residual);

/// Bytes that activations need: of the slots, and of the workspace.
struct ActivationBytes {
  Index slots;
  Index workspace;
};
/// What an ActivationPlan takes.
ActivationBytes activation_bytes(const ActivationRecording& recording, const std::vector<ChunkLayers>& chunks,
                                 const ActivationMemory& memory);

}  // namespace espalier
