// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/pipeline_simulator.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "parallel/mesh/mesh_layout.hpp"

namespace espalier {

Simulation simulate(const std::vector<PipelineSchedule>& stages, const ScheduleCosts& costs) {
  std::vector<const PipelineSchedule*> lists;
  Simulation result;
  for (const PipelineSchedule& list : stages)
    lists.push_back(&list);
  result.busy.assign(stages.size(), 0.0);
  ScheduleRun run = run_schedules(lists, {.degrees = PerAxis::degrees(1, 1, static_cast<int>(stages.size()))}, costs);
  ESPALIER_ASSERT(run.complete, "a schedule that never ends: check_schedules says why");

  double first = std::numeric_limits<double>::infinity();
  double last = 0;
  double busy = 0;
  for (const ScheduleEvent& event : run.events) {
    const auto stage = static_cast<std::size_t>(event.rank);
    if (!is_compute(stages[stage][event.index].kind))
      continue;
    first = std::min(first, event.start);
    last = std::max(last, event.end);
    result.busy[stage] += event.end - event.start;
    busy += event.end - event.start;
  }
  if (last > first) {
    result.window = last - first;
    const double capacity = static_cast<double>(stages.size()) * result.window;
    result.idle_share = (capacity - busy) / capacity;
  }
  result.events = std::move(run.events);
  return result;
}

}  // namespace espalier
