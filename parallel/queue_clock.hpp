// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/types.hpp"
#include "parallel/job_clock.hpp"

namespace espalier {

/// When work was done that a queue was given: a host that only queues it does not see that. On hosts, where work is
/// done before the next line runs, it is the job's clock (queue_clock_host.cpp); on GPUs events
/// (queue_clock_cuda.cpp), which take no time of the queue.
class QueueClock {
 public:
  /// Waits once for what `queue` has been given so far, to set the clock.
  QueueClock(const ExecSpace& queue, const JobClock& clock);
  ~QueueClock();
  QueueClock(const QueueClock&) = delete;
  QueueClock& operator=(const QueueClock&) = delete;

  /// Marks the end of all that the queue has been given so far. Hosts wait for it.
  int mark();

  /// Seconds of the job's clock at that mark. Waits until it is reached.
  double at(int mark) const;

 private:
  struct Events;
  ExecSpace queue_;
  const JobClock& clock_;
  std::vector<double> times_;  // of the marks; on a device only that of the start
  std::unique_ptr<Events> events_;
};

}  // namespace espalier
