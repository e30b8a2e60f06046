// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/types.hpp"

/// Streams as in CUDA: work on a device is enqueued, and the host continues. An instance of the execution space is a
/// stream. These functions order streams without the host waiting. On hosts work is done when a call returns, and there
/// is nothing to order (device_stream_host.cpp); device_stream_cuda.cpp uses streams and events.
namespace espalier {

/// A stream beside the default one, of higher priority: for communication. On hosts the default one.
ExecSpace make_stream();

/// What is enqueued on `later` from now on begins when all work of `earlier` so far is done.
void order_after(const ExecSpace& later, const ExecSpace& earlier);

/// Makes events now for so many more that will be pending at a time, so that steps make none.
void reserve_events(int count);

/// A point in the work of a stream.
class StreamEvent {
 public:
  StreamEvent();  ///< not recorded: done
  ~StreamEvent();
  StreamEvent(StreamEvent&&) noexcept;
  StreamEvent& operator=(StreamEvent&&) noexcept;

  /// Records the end of all work of `stream` so far.
  void record(const ExecSpace& stream);

  /// Is that done? Does not wait.
  [[nodiscard]] bool query() const;

  /// What is enqueued on `stream` from now on begins when that is done.
  void block(const ExecSpace& stream) const;

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace espalier
