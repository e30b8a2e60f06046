// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/phases.hpp"
#include "parallel/collectives/tensor_parallel.hpp"
#include "parallel/device/stream_clock.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// Times the work of a step by the clock of its stream: known once the stream has done it.
class ComputeTimes {
 public:
  /// `enqueued`: of the tensor axis. The arguments must outlive it.
  ComputeTimes(const ExecSpace& exec, const Communicator& world, const std::vector<EnqueuedCollective>& enqueued)
      : exec_(exec), world_(world), enqueued_(enqueued) {}

  void begin_step();

  StreamClock& clock() { return *clock_; }
  int mark() { return clock_->mark(); }

  /// Work between two marks.
  struct Work {
    Operation op = {};
    std::string name = {};  ///< empty: observers are not notified
    Phase phase = Phase::other;
    int begin = 0;
    int end = 0;
    double tensor_seconds = 0;       ///< of it, in collectives that the host waited for
    double waited_seconds = 0;       ///< for weights, and for buffers for gradients
    std::size_t first_enqueued = 0;  ///< of the enqueued collectives; and behind its last
    std::size_t end_enqueued = 0;
  };
  template <class F>
  void enqueue(Phase phase, const F& work) {
    const Region region(std::string("espalier::training::") + to_string(phase));
    const int begin = mark();
    work();
    add({.phase = phase, .begin = begin, .end = mark()});
  }
  void add(Work work) { work_.push_back(std::move(work)); }

  /// Adds the times of the work since the last call to its phases, and notifies the observers. Waits until the stream
  /// has done the work: an earlier call would make the host wait for the device, and the device for the host.
  void wait_and_account(PhaseSeconds& seconds);

 private:
  double account_for_collectives(const Work& work) const;

  const ExecSpace& exec_;
  const Communicator& world_;
  const std::vector<EnqueuedCollective>& enqueued_;
  std::optional<StreamClock> clock_;
  std::vector<Work> work_;
};

}  // namespace espalier
