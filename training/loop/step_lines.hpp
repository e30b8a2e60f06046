// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/stopwatch.hpp"
#include "training/loop/loop_observer.hpp"
#include "training/loop/prediction_check.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier {

/// Writes the line of each step on rank 0: into metrics.jsonl and on the console, with throughput and remaining time.
class StepLines : public LoopObserver {
 public:
  /// @param peak_rate FLOP/s of all devices together, where it is known. What is given must outlive it.
  StepLines(const RunContext& run, const TrainEvents& events, const PredictionCheck& prediction,
            std::optional<double> peak_rate)
      : run_(run), events_(events), prediction_(prediction), peak_rate_(peak_rate) {}

  void before_step(Index step) override;
  void after_step(const LoopStep& step) override;
  void rolled_back_to(Index step) override;

 private:
  TrainProgress progress_of(const StepReport& report) const;

  const RunContext& run_;
  const TrainEvents& events_;
  const PredictionCheck& prediction_;
  std::optional<double> peak_rate_;
  std::optional<Stopwatch> since_first_step_;
  Index steps_ = 0;  // of this launch, with those that were rolled back
};

}  // namespace espalier
