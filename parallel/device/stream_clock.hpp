// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/types.hpp"
#include "parallel/observe/job_clock.hpp"

namespace espalier {

/// Measures when work on a stream was done, which a host that only enqueues it does not see. On GPUs it uses events,
/// which take no time of the stream (stream_clock_cuda.cpp). On hosts it is the job's clock (stream_clock_host.cpp).
class StreamClock {
 public:
  StreamClock(const ExecSpace& stream, const JobClock& clock);
  ~StreamClock();
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  /// Marks the end of all work of the stream so far.
  int mark();

  /// Seconds of the job's clock at that mark. Waits until the newest mark is reached, which synchronizes the clocks.
  double seconds_at(int mark) const;

 private:
  struct Events;
  ExecSpace stream_;
  const JobClock& clock_;
  std::vector<double> times_;  // of the marks, on hosts
  std::unique_ptr<Events> events_;
};

}  // namespace espalier
