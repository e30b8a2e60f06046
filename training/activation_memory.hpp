// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/layer_partition.hpp"
#include "models/microbatch.hpp"
#include "parallel/pipeline_schedule.hpp"

namespace espalier {

/// Activation memory of the chunks, as the list needs it.
ActivationMemory activation_memory(const PipelineSchedule& schedule, const std::vector<ChunkLayers>& chunks,
                                   bool separate_documents = false);

}  // namespace espalier
