// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/types.hpp"

/// Streams as in CUDA: work on a device is enqueued, and the host goes on. An instance of the execution space is a
/// stream. These order one behind another without the host waiting. device_stream_host.cpp, where work is done when a
/// call returns and there is nothing to order; device_stream_cuda.cpp with streams and events.
namespace espalier {

/// A stream beside the default one, of higher priority: for communication. On hosts the default one.
ExecSpace make_stream();

/// What `later` is given from now on begins when all is done that `earlier` has been given so far.
void order_after(const ExecSpace& later, const ExecSpace& earlier);

/// So many more events will be pending at a time, some of them behind the back of the steps.
void reserve_events(int count);

/// A point in the work of a stream.
class StreamEvent {
 public:
  StreamEvent();  ///< not recorded: done
  ~StreamEvent();
  StreamEvent(StreamEvent&&) noexcept;
  StreamEvent& operator=(StreamEvent&&) noexcept;

  /// Records the end of all that `stream` has been given so far.
  void record(const ExecSpace& stream);

  /// Is that done? Does not wait.
  [[nodiscard]] bool query() const;

  /// What `stream` is given from now on begins when that is done.
  void block(const ExecSpace& stream) const;

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace espalier
