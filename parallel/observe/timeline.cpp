// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/observe/timeline.hpp"

#include <utility>

namespace espalier {

void Timeline::switch_on(std::size_t expected_events) {
  on_ = true;
  events_.reserve(expected_events);
}

void Timeline::spent(const SpentTime& time) {
  if (!on_ || in_evaluation_ || time.end <= time.begin)
    return;
  events_.push_back({.name = std::string(time.what),
                     .category = to_string(time.phase),
                     .chunk = time.chunk,
                     .microbatch = time.microbatch,
                     .begin = time.begin,
                     .end = time.end,
                     .track = time.in_background ? communication_track : operations_track,
                     .step = step_});
}

std::vector<TimelineEvent> Timeline::take() {
  std::vector<TimelineEvent> taken;
  taken.reserve(events_.capacity());
  std::swap(taken, events_);
  return taken;
}

}  // namespace espalier
