// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/timeline.hpp"

namespace espalier {

void Timeline::switch_on(std::size_t expected_events) {
  on_ = true;
  events_.reserve(expected_events);
}

std::vector<TimelineEvent> Timeline::take() {
  std::vector<TimelineEvent> taken;
  taken.reserve(events_.capacity());
  std::swap(taken, events_);
  return taken;
}

}  // namespace espalier
