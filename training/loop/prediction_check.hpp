// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/memory_ledger.hpp"
#include "training/loop/loop_observer.hpp"
#include "training/prediction/predict_time.hpp"

namespace espalier {

/// Compares what a run was predicted to need with what it took.
class PredictionCheck {
 public:
  /// @param gemm_rate measured FLOP/s of all ranks together. What is given must outlive it.
  PredictionCheck(const RunConfig& config, const Layout& layout, const ProcessMesh& mesh, double gemm_rate);

  /// The same on all ranks.
  const PredictionRecord& record() const { return predicted_; }

  /// Adds a step; the first of a launch is not counted, since it touches memory for the first time.
  void add(const StepReport& report);

  struct Comparison {
    std::vector<std::string> notes;  ///< lines for people
    nlohmann::json details;          ///< for run.json: memory, time
  };
  /// Compares the times of the steps added, and the peak memory. Collective; the result is on rank 0.
  Comparison compare() const;

 private:
  struct Measured;
  void compare_memory(const std::vector<Measured>& ranks, Comparison& comparison) const;
  void compare_time(const std::vector<Measured>& ranks, Comparison& comparison) const;
  std::size_t stage_of(int rank) const;

  const RunConfig& config_;
  const ProcessMesh& mesh_;
  PredictionRecord predicted_;
  double gemm_rate_;
  PhaseSeconds sum_;  // of the steps added
  double step_seconds_ = 0;
  double attention_shares_ = 0;
  Index steps_ = 0;
  Index reports_ = 0;
};

/// Adds the steps of the loop to a check, and prints at its end what came of it.
class PredictionNotes : public LoopObserver {
 public:
  /// What is given must outlive it.
  PredictionNotes(const RunContext& run, PredictionCheck& check) : run_(run), check_(check) {}

  void after_step(const LoopStep& step) override { check_.add(step.report); }
  void loop_ends(Index steps_done) override;

 private:
  const RunContext& run_;
  PredictionCheck& check_;
};

}  // namespace espalier
