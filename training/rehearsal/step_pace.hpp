// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "models/layer_partition.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// Lets an operation last as long as on the emulated machine (--emulate): it does its small real work, then sleeps for
/// the rest, block by block, so that what happens between blocks happens at the right time.
class OperationPace {
 public:
  /// @param seconds of the whole operation; 0: as long as it takes
  /// @param num_parts calls of part_done() to come
  /// @param slow_factor the operation lasts so many times as long
  OperationPace(double seconds, int num_parts, double slow_factor = 1)
      : seconds_(seconds), num_parts_(num_parts), slow_factor_(slow_factor) {}

  /// `not_work`: seconds of communication since construction, which the emulated machine takes in addition. `meanwhile`
  /// is called now and then: on that machine messages progress during the work.
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
  double not_work_ = 0;  // as reported last
  Clock::time_point start_ = Clock::now();
  Clock::time_point resumed_ = start_;
};

/// Lets what this rank computes in a step last as long as --emulate says, by sleeping in it.
class StepPace : public StepObserver {
 public:
  /// Observes the rank as long as it lives, where anything is emulated. `mesh` must outlive it.
  StepPace(const RunConfig& config, const Layout& layout, const ProcessMesh& mesh);
  ~StepPace() override;
  StepPace(const StepPace&) = delete;
  StepPace& operator=(const StepPace&) = delete;

  void work_begins(Phase phase, const Operation* operation) override;
  void block_done(double communicated, const std::function<void()>& progress) override;

 private:
  OperationPace pace_of(const Operation& operation) const;

  RunConfig::Emulate emulate_;
  std::vector<ChunkLayers> chunks_;
  const ProcessMesh& mesh_;
  std::optional<OperationPace> pace_;
};

}  // namespace espalier
