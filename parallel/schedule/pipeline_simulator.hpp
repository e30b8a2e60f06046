// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "parallel/schedule/pipeline_schedule.hpp"
#include "parallel/schedule/schedule_run.hpp"

namespace espalier {

/// What one step of a pipeline costs. "Work" is forward, backward, backward_input and backward_weight.
struct Simulation {
  std::vector<ScheduleEvent> events;  ///< of all stages, by (start, stage), no effect before its cause
  double window = 0;                  ///< from the start of the first work of any stage to the end of the last of any
  std::vector<double> busy;           ///< of each stage: seconds of work
  double idle_share = 0;              ///< the bubble: 1 - busy / (stages x window)
};

/// Times the lists of all stages of one pipeline; they must pass check_schedules. Pure.
Simulation simulate(const std::vector<PipelineSchedule>& stages, const ScheduleCosts& costs);

}  // namespace espalier
