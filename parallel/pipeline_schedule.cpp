// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline_schedule.hpp"

#include <algorithm>

namespace espalier {

PipelineSchedule single_stage_schedule(int num_microbatches) {
  PipelineSchedule schedule;
  for (int m = 0; m < num_microbatches; ++m) {
    schedule.push_back({.kind = OperationKind::forward, .microbatch = m});
    schedule.push_back({.kind = OperationKind::backward, .microbatch = m, .reduces = m + 1 == num_microbatches});
  }
  return schedule;
}

int slots_needed(const PipelineSchedule& schedule) {
  int in_flight = 0;
  int most = 0;
  for (const Operation& operation : schedule) {
    in_flight += operation.kind == OperationKind::forward ? 1 : -1;
    most = std::max(most, in_flight);
  }
  return most;
}

}  // namespace espalier
