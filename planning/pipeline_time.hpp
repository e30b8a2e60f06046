// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "core/scalars.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// Seconds of one micro-batch on one chunk.
struct ChunkSeconds {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double total() const { return forward + backward_input + backward_weight; }
};

struct PipelineCosts {
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  Index microbatches = 1;
  std::vector<std::vector<ChunkSeconds>> chunks;  ///< [stage][chunk]
  double message = 0;                             ///< seconds from one stage to the next, either way
  /// Seconds that a send of a stage takes beyond that: a slow link. The simulation knows it, the estimate does not.
  std::function<double(int stage, const Operation& send)> delay = {};
  int num_stages() const { return static_cast<int>(chunks.size()); }
  int num_chunks() const { return chunks.empty() ? 1 : static_cast<int>(chunks.front().size()); }
};

struct PipelineTime {
  double window = 0;   ///< seconds from the first work of any stage to the last
  double busiest = 0;  ///< seconds of work of the stage that has most
  int busiest_stage = 0;
  double idle_share = 0;  ///< 1 - work of all stages / (stages x window)
};

/// Runs the operation lists that `train` runs (parallel/schedule/pipeline_schedule.hpp) through the simulator. Lists of
/// more than `most_operations` are cut to two shorter ones with the same warm-up and cool-down, and what one more
/// micro-batch costs in between is added for those left out: exact once the schedule repeats itself. Schedules that
/// `train` has no list for are priced by their authors' closed form, and so are pipelines whose cut lists would still
/// have more than 400,000 operations (about 250 stages, or 64 of 16 chunks): estimate_pipeline_time().
PipelineTime pipeline_time(const PipelineCosts& costs, Index most_operations = 40000);

/// Without lists: work of the busiest stage, bubble_seconds, and messages: those of the first micro-batch on its way
/// through all stages and back, and one for each micro-batch and chunk. What the search ranks by before it simulates.
PipelineTime estimate_pipeline_time(const PipelineCosts& costs);

/// Idle seconds of a stage in closed form, for equal stages and free messages: (p - 1)(F + B) for 1F1B and GPipe
/// [Narayanan et al. 2021, 2.2.1], the same by v for v chunks [2.2.2], (p - 1)(F + B - 2 W) for ZB-H1, where B is both
/// parts of backward, (p - 1)(F + B - 3 W) at least 0 for ZB-2p [Qi et al. 2023, Table 2], 0 for ZB-V.
double bubble_seconds(ScheduleKind schedule, int stages, int chunks, Index microbatches, const ChunkSeconds& stage);

}  // namespace espalier
