// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "parallel/mesh/process_mesh.hpp"
#include "training/step/trainer.hpp"

namespace espalier {

class RunFiles;
class StopAgreement;

/// What the parts of a run share: config, layout, mesh, files.
struct RunContext {
  const RunConfig& config;
  const Layout& layout;
  const ProcessMesh& mesh;
  RunFiles& files;
  StopAgreement& stop;
  std::function<void(const std::string&)> note;  ///< a line for people, of rank 0
  std::string id = {};                           ///< of the run, once its directory is taken

  bool is_root() const { return mesh.world().rank() == 0; }
};

/// A step that the loop has taken and that was not rolled back.
struct LoopStep {
  const StepReport& report;
  bool is_last;            ///< of the run
  bool validation_is_due;  ///< a validation follows
};

/// Observes the training loop: records, checks, saves, validations. All ranks call each function, in the order of the
/// loop's list of observers.
class LoopObserver {
 public:
  virtual ~LoopObserver() = default;

  virtual void before_step(Index /* step */) {}

  /// Before the update of a step that is a spike or not finite, inside the step.
  virtual void before_anomaly(const StepReport&) {}

  virtual void after_step(const LoopStep&) {}

  /// The run was rolled back: the steps after `step` are taken again.
  virtual void rolled_back_to(Index /* step */) {}

  /// No step follows in this launch, and all saves are done.
  virtual void loop_ends(Index /* steps_done */) {}
};

}  // namespace espalier
