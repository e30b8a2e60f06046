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

/// The run's directory and the records of its steps, on rank 0. All ranks call each function; those that may fail are
/// collective.
class RunFiles {
 public:
  using Note = std::function<void(const std::string&)>;

  /// What is given must outlive it.
  RunFiles(const RunConfig& config, const TrainOptions& options, const Communicator& world, Note note);

  /// Takes the directory and prints how the launch before ended. Changes nothing. @returns the id of the run.
  std::string take_directory();

  /// Begins to write, after all checks that may refuse the launch. Sets aside records and checkpoints of steps after
  /// `resumed_step`.
  void begin_launch(Index resumed_step, const PredictionCheck& prediction);
  bool has_begun_launch() const { return has_begun_launch_; }

  /// On rank 0: no step was left to take, so config, facts and times of the earlier launch stay.
  bool keeps_figures() const { return keeps_figures_; }

  /// Did the launch before complete the run? Collective.
  bool was_completed() const;

  /// The directory must still be the one that was opened; else the launch is no longer recorded there.
  void require_in_place();

  /// Details for run.json, on rank 0.
  void update(const nlohmann::json& details);

  /// Writes a failure into run.json, if this launch has begun there.
  void record_failure(const Error& error) const;

  /// Writes the end of the launch into run.json, on rank 0.
  void end_launch(TrainOutcome outcome, const std::string& cause);

  /// Opens the records after `step`, on rank 0; lines of later steps are set aside.
  void open_records(Index step);
  StepRecords& records() { return *records_; }
  const RunDirectory& directory() const { return *directory_; }

  const Path& path() const { return path_; }
  Path checkpoints() const { return path_ / RunFolder::checkpoints; }

 private:
  void begin_launch_on_root(Index resumed_step, const PredictionCheck& prediction);
  void set_aside_records() const;

  const RunConfig& config_;
  const TrainOptions& options_;
  const Communicator& world_;
  Note note_;
  bool is_root_;
  Path path_;
  std::optional<RunDirectory> directory_;
  std::optional<StepRecords> records_;
  bool has_begun_launch_ = false;
  bool keeps_figures_ = false;
};

}  // namespace espalier
