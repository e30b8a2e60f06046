// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "io/records/run_directory.hpp"
#include "training/loop/prediction_check.hpp"
#include "training/loop/step_records.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier {

/// The run's directory and the records of its steps, which rank 0 has. Each function is called by all ranks, and is
/// collective where it may fail.
class RunFiles {
 public:
  using Note = std::function<void(const std::string&)>;

  /// What is given must outlive it.
  RunFiles(const RunConfig& config, const TrainOptions& options, const Communicator& world, Note note);

  /// Takes the directory and tells how the launch before ended. Changes nothing. @returns the id of the run.
  std::string take_directory();

  /// After `resumed_step`: what refuses a launch has come before. Sets aside what launches before have left of later
  /// steps.
  void sign_on(Index resumed_step, const PredictionCheck& prediction);
  bool is_signed_on() const { return signed_on_; }

  /// On rank 0: there was nothing left to do, so config, facts and times stay those of the steps that were taken.
  bool keeps_figures() const { return keeps_figures_; }

  /// Did the launch before complete the run? Collective.
  bool was_completed() const;

  /// The directory must still be the one that was opened; else it is no longer signed on.
  void require_in_place();

  /// Details for run.json, on rank 0.
  void update(const nlohmann::json& details);

  /// Signs a failure off, if this launch has signed on.
  void sign_off_failed(const Error& error) const;

  /// On rank 0: run.json's last word.
  void sign_off(TrainOutcome outcome, const std::string& cause);

  /// On rank 0: what is there of later steps is set aside.
  void open_records(Index step);
  StepRecords& records() { return *records_; }
  const RunDirectory& directory() const { return *directory_; }

  const Path& path() const { return path_; }
  Path checkpoints() const { return path_ / "checkpoints"; }

 private:
  void sign_on_root(Index resumed_step, const PredictionCheck& prediction);
  void set_aside_records() const;

  const RunConfig& config_;
  const TrainOptions& options_;
  const Communicator& world_;
  Note note_;
  bool is_root_;
  Path path_;
  std::optional<RunDirectory> directory_;
  std::optional<StepRecords> records_;
  bool signed_on_ = false;
  bool keeps_figures_ = false;
};

}  // namespace espalier
