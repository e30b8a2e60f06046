// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "training/checkpoint/checkpoint_saver.hpp"
#include "training/loop/loop_observer.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier {

/// The loss over the validation files every run.eval_interval steps, and at the end. Saves continue meanwhile, and a
/// stop ends it.
class Validation : public LoopObserver {
 public:
  /// What is given must outlive it.
  Validation(const RunContext& run, const TrainEvents& events, Trainer& trainer, CheckpointSaver& saver)
      : run_(run), events_(events), trainer_(trainer), saver_(saver) {}

  bool is_due(Index step) const;
  void after_step(const LoopStep& step) override;

  /// Of the weights of now. Collective.
  void validate();

 private:
  const RunContext& run_;
  const TrainEvents& events_;
  Trainer& trainer_;
  CheckpointSaver& saver_;
};

}  // namespace espalier
