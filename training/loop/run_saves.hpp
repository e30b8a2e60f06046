// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "training/checkpoint/checkpoint_saver.hpp"
#include "training/loop/loop_observer.hpp"
#include "training/step/trainer.hpp"

namespace espalier {

/// Rolls a run back to its newest checkpoint after a spike, and passes over the samples of the step. The next
/// checkpoint has what is passed over; a run that is killed before comes to the same spike, and rolls back again.
class Rollbacks {
 public:
  explicit Rollbacks(Index max_rollbacks) : max_rollbacks_(max_rollbacks) {}

  void checkpoint_saved() { count_ = 0; }

  /// Collective. `owner`: the id of the run. @returns the step that the run resumes after. @throws Error (numerical)
  /// when there have been too many since the last checkpoint was saved.
  Index roll_back(const StepReport& report, const RunConfig& config, const std::string& owner, const ProcessMesh& mesh,
                  Trainer& trainer, const std::function<void(const std::string&)>& note);

 private:
  Index max_rollbacks_;
  Index count_ = 0;
};

/// When a run saves, and how it rolls back to what it has saved. Collective.
class RunSaves : public LoopObserver {
 public:
  /// What is given must outlive it.
  RunSaves(const RunContext& run, Trainer& trainer, CheckpointSaver& saver)
      : run_(run), trainer_(trainer), saver_(saver), rollbacks_(run.config.stability.max_rollbacks) {}

  void before_step(Index) override { blocked_seconds_ += saver_.take_seconds(); }

  /// Saves what is due, and first learns from the step whether all ranks stop.
  void after_step(const LoopStep& step) override;

  /// Seconds for which saves have held up training since the last step that counted, but for those in a step.
  double take_seconds() { return std::exchange(blocked_seconds_, 0.0); }

  void save();

  /// As the last act of a launch.
  void save_and_drain();

  /// To the newest checkpoint. @returns the step that it resumes after.
  Index roll_back(const StepReport& report);

 private:
  const RunContext& run_;
  Trainer& trainer_;
  CheckpointSaver& saver_;
  Rollbacks rollbacks_;
  double blocked_seconds_ = 0;
  Index saved_step_ = -1;  // of this launch
};

}  // namespace espalier
