// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/ops/gradient_norm.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// How far a step lies above the steps before it, in standard deviations of theirs.
struct SpikeScores {
  double loss = 0;
  double gradient_norm = 0;
};

enum class Anomaly { none, spike, non_finite };
const char* to_string(Anomaly anomaly);

/// What happens to a step, by the policy stability.on_spike.
enum class StepAction {
  update,
  skip,      ///< no update; the step counts, and its data are used up
  rollback,  ///< no update; the run returns to a checkpoint and passes over the step's samples
  give_up    ///< the run cannot go on
};

struct Judgement {
  std::optional<SpikeScores> scores;  ///< none while fewer than half a window of steps has been seen
  Anomaly anomaly = Anomaly::none;
  StepAction action = StepAction::update;
};

/// Finds steps whose loss or gradient norm spikes, and decides what happens to them.
///
/// The score of a value x against the last `spike_window` values v that led to an update is robust, so that spikes do
/// not hide spikes: (x - median(v)) / max(1.4826 median(|v - median(v)|), floor). Losses are taken as they are, with a
/// floor of 0.01 max(1, |median|); of norms, which scatter by factors, the logarithm with a floor of 0.1. A step is a
/// spike where one of its scores is above `spike_threshold`: falls, as at the start of training, never are. All ranks
/// see the same numbers, so they judge alike.
class SpikeGuard {
 public:
  explicit SpikeGuard(const RunConfig::Stability& config) : config_(config) {}

  /// Values above them, or not finite, are anomalies.
  UpdateLimits limits() const;

  /// Judges a step before its update, and stores its values if there will be one.
  Judgement judge(double loss, double gradient_norm);

  /// A step without a valid token: it is no anomaly, and updates nothing.
  void skip_empty() { ++skipped_; }

  Index skipped() const { return skipped_; }  ///< steps since the start of the run

  /// The whole state, for checkpoints. @throws std::runtime_error on a state of something else.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  struct Baseline;
  std::optional<Baseline> baseline() const;
  void remember(double loss, double gradient_norm);

  RunConfig::Stability config_;
  std::deque<double> losses_;
  std::deque<double> log_norms_;
  Index skipped_ = 0;
  Index skipped_in_a_row_ = 0;
};

}  // namespace espalier
