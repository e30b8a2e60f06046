// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/types.hpp"

/// Work on a device queues up behind the host's back: instances of the execution space are such queues. These order one
/// behind another without the host waiting. device_queue_host.cpp, where work is done when a call returns and there is
/// nothing to order; device_queue_cuda.cpp with streams and events.
namespace espalier {

/// A queue beside the default one, of higher priority: for communication. On hosts the default one.
ExecSpace make_queue();

/// What `later` is given from now on begins when all is done that `earlier` has been given so far.
void order_after(const ExecSpace& later, const ExecSpace& earlier);

/// So many more places in queues will be marked at a time, some of them behind the back of the steps.
void reserve_marks(int count);

/// A place in a queue.
class QueueMark {
 public:
  QueueMark();  ///< set nowhere: reached
  ~QueueMark();
  QueueMark(QueueMark&&) noexcept;
  QueueMark& operator=(QueueMark&&) noexcept;

  /// Here, behind all that `queue` has been given so far.
  void set(const ExecSpace& queue);

  /// Is all before it done? Does not wait.
  [[nodiscard]] bool reached() const;

  /// What `queue` is given from now on begins when it is reached.
  void hold(const ExecSpace& queue) const;

 private:
  struct Event;
  std::unique_ptr<Event> event_;
};

}  // namespace espalier
