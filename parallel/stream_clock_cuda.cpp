// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_check.hpp"
#include "core/kokkos_compat.hpp"
#include "parallel/event_pool_cuda.hpp"
#include "parallel/stream_clock.hpp"

namespace espalier {
namespace {

constexpr double seconds_per_ms = 1e-3;

}  // namespace

struct StreamClock::Events {
  std::vector<PooledEvent> marks;  // the first is the start

  void record(const ExecSpace& stream) {
    const PooledEvent& event = marks.emplace_back(timing_events());
    ESPALIER_CUDA(cudaEventRecord(event.handle(), stream.cuda_stream()));
  }
};

StreamClock::StreamClock(const ExecSpace& stream, const JobClock& clock)
    : stream_(stream), clock_(clock), events_(std::make_unique<Events>()) {
  events_->record(stream_);
  compat::fence(stream_, "espalier::StreamClock: the host's clock is read at the first event");
  times_.push_back(clock_.now());
}

StreamClock::~StreamClock() = default;

int StreamClock::mark() {
  events_->record(stream_);
  return static_cast<int>(events_->marks.size()) - 1;
}

double StreamClock::seconds_at(int mark) const {
  const cudaEvent_t event = events_->marks[static_cast<std::size_t>(mark)].handle();
  ESPALIER_CUDA(cudaEventSynchronize(event));
  float ms = 0;
  ESPALIER_CUDA(cudaEventElapsedTime(&ms, events_->marks.front().handle(), event));
  return times_.front() + seconds_per_ms * static_cast<double>(ms);
}

}  // namespace espalier
