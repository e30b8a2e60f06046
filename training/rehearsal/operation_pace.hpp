// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "parallel/schedule/pipeline_schedule.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// Lets an operation last as long as on the machine that is imitated (--emulate): it does its small real work, then
/// sleeps for what is missing, block by block, so that what happens between blocks happens at the right time.
class OperationPace {
 public:
  /// @param seconds of the whole operation; 0: as long as it takes
  /// @param num_parts calls of part_done() to come
  /// @param slow_factor the operation lasts so many times as long
  OperationPace(double seconds, int num_parts, double slow_factor = 1)
      : seconds_(seconds), num_parts_(num_parts), slow_factor_(slow_factor) {}

  /// `not_work`: seconds since construction that went into communication, which the imitated machine spends besides.
  /// `meanwhile` is called now and then: on that machine messages move while it works.
  void part_done(double not_work, const std::function<void()>& meanwhile = {}) {
    if (seconds_ <= 0 && slow_factor_ <= 1)
      return;
    ++parts_done_;
    worked_ += seconds_between(resumed_, Clock::now()) - (not_work - not_work_);
    not_work_ = not_work;
    const double work = seconds_ > 0 ? seconds_ * parts_done_ / num_parts_ : worked_;
    sleep_until(start_ + duration(work * slow_factor_ + not_work), meanwhile);
    resumed_ = Clock::now();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static Clock::duration duration(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  void sleep_until(Clock::time_point end, const std::function<void()>& meanwhile) const {
    if (meanwhile) {
      const Clock::duration nap = duration(std::max(2e-3, seconds_ / 32));
      for (Clock::time_point now = Clock::now(); now + nap < end; now = Clock::now()) {
        std::this_thread::sleep_until(now + nap);
        meanwhile();
      }
    }
    std::this_thread::sleep_until(end);
  }
  static double seconds_between(Clock::time_point begin, Clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
  }

  double seconds_;
  int num_parts_;
  double slow_factor_;
  int parts_done_ = 0;
  double worked_ = 0;    // seconds of real work
  double not_work_ = 0;  // as told last
  Clock::time_point start_ = Clock::now();
  Clock::time_point resumed_ = start_;
};

/// Seconds that an operation of a chunk of `layers`, which is this part of the model in forward order, is to last; 0:
/// as long as it does.
inline double emulated_seconds(const RunConfig::Emulate& emulate, OperationKind kind, Index layers, int part) {
  const std::vector<Index>& percent = kind == OperationKind::forward || emulate.backward_percent.empty()
                                          ? emulate.part_percent
                                          : emulate.backward_percent;
  const double share = percent.empty() ? 1 : static_cast<double>(percent.at(static_cast<std::size_t>(part))) / 100;
  const double times = share * (emulate.per_layer ? static_cast<double>(layers) : 1);
  switch (kind) {
    case OperationKind::forward: return times * emulate.forward;
    case OperationKind::backward: return times * (emulate.backward_input + emulate.backward_weight);
    case OperationKind::backward_input: return times * emulate.backward_input;
    case OperationKind::backward_weight: return times * emulate.backward_weight;
    default: return 0;
  }
}

inline double slow_factor(const RunConfig::Emulate& emulate, int world_rank) {
  return world_rank == emulate.slow_rank ? emulate.slow_factor : 1;
}

}  // namespace espalier
