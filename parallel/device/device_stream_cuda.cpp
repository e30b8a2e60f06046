// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_check.hpp"
#include "parallel/device/device_stream.hpp"
#include "parallel/device/event_pool_cuda.hpp"

namespace espalier {

// A blocked stream goes by what was recorded when it was blocked: afterwards the event may be used again.
struct StreamEvent::Handle : PooledEvent {
  Handle() : PooledEvent(order_events()) {}
};

ExecSpace make_stream() {
  int lowest = 0;
  int highest = 0;
  ESPALIER_CUDA(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  cudaStream_t stream = nullptr;
  ESPALIER_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest));
  return ExecSpace(stream, Kokkos::Impl::ManageStream::yes);
}

void reserve_events(int count) { order_events().reserve(count); }

void order_after(const ExecSpace& later, const ExecSpace& earlier) {
  if (later.cuda_stream() == earlier.cuda_stream())
    return;
  StreamEvent event;
  event.record(earlier);
  event.block(later);
}

StreamEvent::StreamEvent() = default;
StreamEvent::~StreamEvent() = default;
StreamEvent::StreamEvent(StreamEvent&&) noexcept = default;
StreamEvent& StreamEvent::operator=(StreamEvent&&) noexcept = default;

void StreamEvent::record(const ExecSpace& stream) {
  if (!handle_)
    handle_ = std::make_unique<Handle>();
  ESPALIER_CUDA(cudaEventRecord(handle_->handle(), stream.cuda_stream()));
}

bool StreamEvent::query() const {
  if (!handle_)
    return true;
  const cudaError_t state = cudaEventQuery(handle_->handle());
  if (state == cudaErrorNotReady)
    return false;
  ESPALIER_CUDA(state);
  return true;
}

void StreamEvent::block(const ExecSpace& stream) const {
  if (handle_)
    ESPALIER_CUDA(cudaStreamWaitEvent(stream.cuda_stream(), handle_->handle(), 0));
}

}  // namespace espalier
