// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_check.hpp"
#include "parallel/device_queue.hpp"
#include "parallel/event_pool_cuda.hpp"

namespace espalier {

// A queue that is held goes by what was recorded when it was told to wait: afterwards the event may be used again.
struct QueueMark::Event : PooledEvent {
  Event() : PooledEvent(order_events()) {}
};

ExecSpace make_queue() {
  int lowest = 0;
  int highest = 0;
  ESPALIER_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  cudaStream_t stream = nullptr;
  ESPALIER_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest));
  return ExecSpace(stream, Kokkos::Impl::ManageStream::yes);
}

void reserve_marks(int count) { order_events().reserve(count); }

void order_after(const ExecSpace& later, const ExecSpace& earlier) {
  if (later.cuda_stream() == earlier.cuda_stream())
    return;
  QueueMark mark;
  mark.set(earlier);
  mark.hold(later);
}

QueueMark::QueueMark() = default;
QueueMark::~QueueMark() = default;
QueueMark::QueueMark(QueueMark&&) noexcept = default;
QueueMark& QueueMark::operator=(QueueMark&&) noexcept = default;

void QueueMark::set(const ExecSpace& queue) {
  if (!event_)
    event_ = std::make_unique<Event>();
  ESPALIER_CUDA(cudaEventRecord(event_->handle(), queue.cuda_stream()));
}

bool QueueMark::reached() const {
  if (!event_)
    return true;
  const cudaError_t state = cudaEventQuery(event_->handle());
  if (state == cudaErrorNotReady)
    return false;
  ESPALIER_CUDA(state);
  return true;
}

void QueueMark::hold(const ExecSpace& queue) const {
  if (event_)
    ESPALIER_CUDA(cudaStreamWaitEvent(queue.cuda_stream(), event_->handle(), 0));
}

}  // namespace espalier
