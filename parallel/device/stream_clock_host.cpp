// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/device/stream_clock.hpp"

namespace espalier {

struct StreamClock::Events {};

StreamClock::StreamClock(const ExecSpace& stream, const JobClock& clock) : stream_(stream), clock_(clock) {}
StreamClock::~StreamClock() = default;

int StreamClock::mark() {
  times_.push_back(clock_.now());
  return static_cast<int>(times_.size()) - 1;
}

double StreamClock::seconds_at(int mark) const { return times_[static_cast<std::size_t>(mark)]; }

}  // namespace espalier
