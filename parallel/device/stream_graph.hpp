// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "core/types.hpp"

namespace espalier {

/// Work that a stream is given again and again, the same kernels on the same arrays: recorded once and then started as
/// a whole, so that the host makes one call instead of one a kernel. A CUDA graph (stream_graph_cuda.cpp); on hosts
/// (stream_graph_host.cpp) the work is simply done.
class StreamGraph {
 public:
  StreamGraph();
  ~StreamGraph();
  StreamGraph(StreamGraph&&) noexcept;
  StreamGraph& operator=(StreamGraph&&) noexcept;

  /// Does `work`, which gives kernels to `stream` and to no other, behind all that the stream has been given so far.
  /// The first time as it is, since libraries then choose algorithms and allocate; the second time it is recorded, and
  /// from then on `work` is not called any more. So it must neither wait nor read what changes from time to time on the
  /// host, but in call_each_time(), nor run another graph.
  void run(const ExecSpace& stream, const std::function<void()>& work);

 private:
  struct Recording;
  bool is_warm_ = false;
  std::unique_ptr<Recording> recording_;
};

/// Calls `call`, which the work of a StreamGraph wants each time that the graph runs: a message to other ranks, say.
/// Where the work is being recorded, the recording is split here: `call` comes between the segments, now and whenever
/// they run, and what it refers to must be there then. It may wait, and use the stream.
void call_each_time(const std::function<void()>& call);

}  // namespace espalier
