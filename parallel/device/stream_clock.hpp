// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/types.hpp"
#include "parallel/observe/job_clock.hpp"

namespace espalier {

/// When work on a stream was done: a host that only enqueues it does not see that. On hosts, where work is done before
/// the next line runs, it is the job's clock (stream_clock_host.cpp); on GPUs events (stream_clock_cuda.cpp), which
/// take no time of the stream.
class StreamClock {
 public:
  StreamClock(const ExecSpace& stream, const JobClock& clock);
  ~StreamClock();
  StreamClock(const StreamClock&) = delete;
  StreamClock& operator=(const StreamClock&) = delete;

  /// Marks the end of all that the stream has been given so far.
  int mark();

  /// Seconds of the job's clock at that mark. Waits until the newest mark is reached, which sets a device's clock.
  double seconds_at(int mark) const;

 private:
  struct Events;
  ExecSpace stream_;
  const JobClock& clock_;
  std::vector<double> times_;  // of the marks, on hosts
  std::unique_ptr<Events> events_;
};

}  // namespace espalier
