// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/activation_memory.hpp"

#include <algorithm>

namespace espalier {

ActivationMemory activation_memory(const PipelineSchedule& schedule, const std::vector<ChunkLayers>& chunks,
                                   bool separate_documents) {
  ActivationMemory memory{
      .chunks = {}, .slots_together = std::max(1, slots_needed(schedule)), .separate_documents = separate_documents};
  for (int chunk = 0; chunk < static_cast<int>(chunks.size()); ++chunk) {
    const int split = pending_weights_needed(schedule, chunk);
    // Without the split two sets take turns where gradients are sent, so that one may be on its way.
    const bool sends = !chunks[static_cast<std::size_t>(chunk)].embedding;
    memory.chunks.push_back({.slots = std::max(1, slots_needed(schedule, chunk)),
                             .gradients = split > 0 ? split
                                          : sends   ? 2
                                                    : 1,
                             .split = split > 0});
  }
  return memory;
}

}  // namespace espalier
