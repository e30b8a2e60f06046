// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "core/types.hpp"

namespace espalier {

/// A CUDA graph (stream_graph_cuda.cpp) of work that a stream does repeatedly: the same kernels on the same arrays. It
/// is recorded once and then launched as a whole, with one call instead of one for each kernel. On hosts
/// (stream_graph_host.cpp) the work is simply done.
class StreamGraph {
 public:
  StreamGraph();
  ~StreamGraph();
  StreamGraph(StreamGraph&&) noexcept;
  StreamGraph& operator=(StreamGraph&&) noexcept;

  /// Does `work`, which enqueues kernels on `stream` only. The first call just does it, since libraries then choose
  /// algorithms and allocate. The second call records it; later calls launch the recording and do not call `work`. So
  /// `work` must not wait, read what changes on the host (but in call_each_time()), or run another graph.
  void run(const ExecSpace& stream, const std::function<void()>& work);

 private:
  struct Recording;
  bool is_warm_ = false;
  std::unique_ptr<Recording> recording_;
};

/// Calls `call` each time that a StreamGraph runs, for example to send a message. While the work is recorded, the
/// recording is split here: `call` runs between the segments, now and at each launch. What it refers to must exist
/// then. It may wait, and use the stream.
void call_each_time(const std::function<void()>& call);

}  // namespace espalier
