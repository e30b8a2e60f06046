// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_check.hpp"
#include "parallel/device/event_pool_cuda.hpp"
#include "parallel/device/stream_clock.hpp"

namespace espalier {
namespace {

constexpr double seconds_per_ms = 1e-3;

}  // namespace

struct StreamClock::Events {
  std::vector<PooledEvent> marks;
  int anchor = -1;  // the mark at which the host's clock was read
  double anchor_seconds = 0;

  cudaEvent_t at(int mark) const { return marks[static_cast<std::size_t>(mark)].handle(); }
};

StreamClock::StreamClock(const ExecSpace& stream, const JobClock& clock)
    : stream_(stream), clock_(clock), events_(std::make_unique<Events>()) {}

StreamClock::~StreamClock() = default;

int StreamClock::mark() {
  const PooledEvent& event = events_->marks.emplace_back(timing_events());
  ESPALIER_CUDA(cudaEventRecord(event.handle(), stream_.cuda_stream()));
  return static_cast<int>(events_->marks.size()) - 1;
}

double StreamClock::seconds_at(int mark) const {
  Events& events = *events_;
  if (mark > events.anchor) {
    events.anchor = static_cast<int>(events.marks.size()) - 1;
    ESPALIER_CUDA(cudaEventSynchronize(events.at(events.anchor)));
    events.anchor_seconds = clock_.now();
  }
  float ms = 0;
  ESPALIER_CUDA(cudaEventElapsedTime(&ms, events.at(mark), events.at(events.anchor)));
  return events.anchor_seconds - seconds_per_ms * static_cast<double>(ms);
}

}  // namespace espalier
