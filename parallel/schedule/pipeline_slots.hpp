// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// Micro-batches that a stage holds at once, at most.
struct PipelineSlots {
  std::vector<int> chunks;  ///< of each chunk by itself, see slots_needed()
  int together = 1;         ///< of all chunks: less than the sum of theirs if their peaks are at different times
  int waiting_weights = 0;  ///< of a chunk, see pending_weights_needed(); 0: backward is one operation
};

/// The slots that the list of the stage needs, mostly in closed form; also for schedules without a list.
PipelineSlots pipeline_slots(const PipelineShape& shape, int stage);

}  // namespace espalier
