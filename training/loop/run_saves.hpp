// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "training/checkpoint/checkpoint_saver.hpp"
#include "training/loop/loop_observer.hpp"
#include "training/loop/rollback.hpp"

namespace espalier {

/// When a run saves, and how it goes back to what it has saved. Collective.
template <class P>
class RunSaves : public LoopObserver {
 public:
  /// What is given must outlive it.
  RunSaves(const RunContext& run, Trainer<P>& trainer, CheckpointSaver<P>& saver)
      : run_(run), trainer_(trainer), saver_(saver), rollbacks_(run.config.stability.max_rollbacks) {}

  void before_step(Index) override { held_up_ += saver_.take_seconds(); }

  /// Saves what is due, and first learns from the step whether all ranks stop.
  void after_step(const LoopStep& step) override;

  /// Seconds for which saves have held up training since the last step that counted, but for those in a step.
  double take_seconds() { return std::exchange(held_up_, 0.0); }

  void save();

  /// As the last act of a launch.
  void save_and_drain();

  /// Takes the run back to its newest checkpoint. @returns the step that it goes on after.
  Index go_back(const StepReport& report);

 private:
  const RunContext& run_;
  Trainer<P>& trainer_;
  CheckpointSaver<P>& saver_;
  Rollbacks rollbacks_;
  double held_up_ = 0;
  Index saved_step_ = -1;  // of this launch
};

}  // namespace espalier
