// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <ostream>
#include <string>
#include <vector>

#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

inline std::ostream& operator<<(std::ostream& out, const PipelineShape& shape) {
  return out << to_string(shape.kind) << ", " << shape.stages << " stages x " << shape.chunks << " chunks, "
             << shape.microbatches << " micro-batches";
}

/// Every schedule for 1 to 8 and 64 stages, 1 to 20 micro-batches, and 1 to 4 chunks where it has any.
template <class Function>
void for_each_shape(Function function) {
  for (const ScheduleKind kind : schedule_kinds_with_lists())
    for (const int stages : {1, 2, 3, 4, 5, 6, 7, 8, 64})
      for (int microbatches = 1; microbatches <= 20; ++microbatches)
        for (int chunks = allowed_chunks(kind).least; chunks <= std::min(4, allowed_chunks(kind).most); ++chunks)
          function(PipelineShape{.kind = kind,
                                 .stages = stages,
                                 .chunks = chunks,
                                 .microbatches = microbatches,
                                 .gathers_weights = microbatches % 2 == 0});
}

inline bool is_work(const Operation& operation) { return operation.kind <= OperationKind::backward_weight; }

/// "F0 F1 B0 B1": the forwards and backwards of a list; "!" follows the one that `reduces`.
inline std::string work(const PipelineSchedule& list, bool several_chunks = false) {
  std::string line;
  for (const Operation& operation : list)
    if (is_work(operation))
      line += fmt::format("{}{}", line.empty() ? "" : " ",
                          text(operation, several_chunks) + (operation.reduces ? "!" : ""));
  return line;
}

}  // namespace espalier
