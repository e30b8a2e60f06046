// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/stopwatch.hpp"
#include "training/loop/loop_observer.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier {

/// Writes the line of each step on rank 0: into metrics.jsonl and on the console, with throughput and remaining time.
class StepLines : public LoopObserver {
 public:
  /// @param gemm_rate measured FLOP/s of all devices together  @param peak_rate their peak, where it is known. What is
  /// given must outlive it.
  StepLines(const RunContext& run, const TrainEvents& events, double gemm_rate, std::optional<double> peak_rate)
      : run_(run), events_(events), gemm_rate_(gemm_rate), peak_rate_(peak_rate) {}

  void before_step(Index step) override;
  void after_step(const LoopStep& step) override;
  void rolled_back_to(Index step) override;

 private:
  TrainProgress progress_of(const StepReport& report) const;

  const RunContext& run_;
  const TrainEvents& events_;
  double gemm_rate_;
  std::optional<double> peak_rate_;
  std::optional<Stopwatch> since_first_step_;
  Index steps_ = 0;  // of this launch, with those that were rolled back
};

}  // namespace espalier
