// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>
#include <utility>
#include <vector>

#include "core/cuda_check.hpp"

namespace espalier {

/// Events of CUDA, kept and handed out again: steps make none. One pool a kind for the process, from any thread.
class EventPool {
 public:
  /// @param flags of cudaEventCreateWithFlags.
  explicit EventPool(unsigned flags) : flags_(flags) {}

  /// Makes so many more now.
  void reserve(int count) {
    const std::lock_guard lock(mutex_);
    make(count);
  }
  cudaEvent_t take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty())
      make(at_a_time);
    const cudaEvent_t event = free_.back();
    free_.pop_back();
    return event;
  }
  /// What already waits for its last record still does.
  void give_back(cudaEvent_t event) {
    const std::lock_guard lock(mutex_);
    free_.push_back(event);
  }

 private:
  static constexpr int at_a_time = 64;

  void make(int count) {
    made_ += static_cast<std::size_t>(count);
    free_.reserve(made_);  // also of those that are out: give_back() allocates nothing
    for (int i = 0; i < count; ++i) {
      cudaEvent_t event = nullptr;
      ESPALIER_CUDA(cudaEventCreateWithFlags(&event, flags_));
      free_.push_back(event);
    }
  }

  unsigned flags_;
  std::mutex mutex_;
  std::size_t made_ = 0;
  std::vector<cudaEvent_t> free_;
};

/// For order alone, and with times. Never destroyed: the driver takes them back at the end.
inline EventPool& order_events() {
  static EventPool& pool = *new EventPool(cudaEventDisableTiming);
  return pool;
}
inline EventPool& timing_events() {
  static EventPool& pool = *new EventPool(cudaEventDefault);
  return pool;
}

/// One of a pool while it lives.
class PooledEvent {
 public:
  explicit PooledEvent(EventPool& pool) : pool_(&pool), handle_(pool.take()) {}
  ~PooledEvent() {
    if (handle_ != nullptr)
      pool_->give_back(handle_);
  }
  PooledEvent(PooledEvent&& other) noexcept : pool_(other.pool_), handle_(std::exchange(other.handle_, nullptr)) {}
  PooledEvent& operator=(PooledEvent&&) = delete;

  cudaEvent_t handle() const { return handle_; }

 private:
  EventPool* pool_;
  cudaEvent_t handle_;
};

}  // namespace espalier
