// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "training/step/trainer.hpp"

namespace espalier {

/// Takes a run back to its newest checkpoint after a spike, and past the samples of the step. What is passed over is in
/// the next checkpoint; a run that is killed before comes to the same spike, and goes back again.
class Rollbacks {
 public:
  explicit Rollbacks(Index most) : most_(most) {}

  void checkpoint_saved() { count_ = 0; }

  /// Collective. `owner`: the id of the run. @returns the step that the run goes on after. @throws Error (numerical)
  /// when there have been too many since the last checkpoint was saved.
  template <class P>
  Index go_back(const StepReport& report, const RunConfig& config, const std::string& owner, const ProcessMesh& mesh,
                Trainer<P>& trainer, const std::function<void(const std::string&)>& note);

 private:
  Index most_;
  Index count_ = 0;
};

}  // namespace espalier
