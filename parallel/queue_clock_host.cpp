// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/kokkos_compat.hpp"
#include "parallel/queue_clock.hpp"

namespace espalier {

struct QueueClock::Events {};

QueueClock::QueueClock(const ExecSpace& queue, const JobClock& clock) : queue_(queue), clock_(clock) {}
QueueClock::~QueueClock() = default;

int QueueClock::mark() {
  compat::fence(queue_, "espalier::QueueClock: what was begun is done when the clock is read");
  times_.push_back(clock_.now());
  return static_cast<int>(times_.size()) - 1;
}

double QueueClock::at(int mark) const { return times_[static_cast<std::size_t>(mark)]; }

}  // namespace espalier
