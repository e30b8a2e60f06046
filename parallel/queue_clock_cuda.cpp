// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_check.hpp"
#include "core/kokkos_compat.hpp"
#include "parallel/event_pool_cuda.hpp"
#include "parallel/queue_clock.hpp"

namespace espalier {
namespace {

constexpr double seconds_per_ms = 1e-3;

}  // namespace

struct QueueClock::Events {
  std::vector<PooledEvent> marks;  // the first is the start

  void record(const ExecSpace& queue) {
    const PooledEvent& event = marks.emplace_back(timing_events());
    ESPALIER_CUDA(cudaEventRecord(event.handle(), queue.cuda_stream()));
  }
};

QueueClock::QueueClock(const ExecSpace& queue, const JobClock& clock)
    : queue_(queue), clock_(clock), events_(std::make_unique<Events>()) {
  events_->record(queue_);
  compat::fence(queue_, "espalier::QueueClock: the host's clock is read at the first event");
  times_.push_back(clock_.now());
}

QueueClock::~QueueClock() = default;

int QueueClock::mark() {
  events_->record(queue_);
  return static_cast<int>(events_->marks.size()) - 1;
}

double QueueClock::at(int mark) const {
  const cudaEvent_t event = events_->marks[static_cast<std::size_t>(mark)].handle();
  ESPALIER_CUDA(cudaEventSynchronize(event));
  float ms = 0;
  ESPALIER_CUDA(cudaEventElapsedTime(&ms, events_->marks.front().handle(), event));
  return times_.front() + seconds_per_ms * static_cast<double>(ms);
}

}  // namespace espalier
