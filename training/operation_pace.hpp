// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <thread>

#include "parallel/pipeline_schedule.hpp"
#include "training/run_config.hpp"

namespace espalier {

/// Lets an operation last as long as on the machine that is imitated ([emulate]): it does its small real work, then
/// sleeps for what is missing, block by block, so that what happens between blocks happens at the right time.
class OperationPace {
 public:
  /// @param num_parts calls of part_done() to come
  OperationPace(double seconds, int num_parts) : seconds_(seconds), num_parts_(num_parts) {}

  /// `not_work`: seconds since construction that went into communication, which the imitated machine spends besides.
  void part_done(double not_work) {
    if (seconds_ <= 0)
      return;
    ++parts_done_;
    const double due = seconds_ * parts_done_ / num_parts_ + not_work;
    std::this_thread::sleep_until(start_ +
                                  std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_;
  int num_parts_;
  int parts_done_ = 0;
  Clock::time_point start_ = Clock::now();
};

/// Seconds that an operation on a part of the model (in forward order) is to last; 0: as long as it does.
inline double emulated_seconds(const RunConfig::Emulate& emulate, OperationKind kind, int part = 0) {
  const std::vector<Index>& percent = emulate.part_percent;
  const double share = percent.empty() ? 1 : static_cast<double>(percent.at(static_cast<std::size_t>(part))) / 100;
  switch (kind) {
    case OperationKind::forward: return share * emulate.forward;
    case OperationKind::backward: return share * (emulate.backward_input + emulate.backward_weight);
    case OperationKind::backward_input: return share * emulate.backward_input;
    case OperationKind::backward_weight: return share * emulate.backward_weight;
    case OperationKind::optimizer: return emulate.optimizer;
    default: return 0;
  }
}

}  // namespace espalier
