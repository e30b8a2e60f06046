// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "io/file.hpp"
#include "training/checkpoint/checkpoint_saver.hpp"
#include "training/loop/loop_observer.hpp"

namespace espalier {

/// A step with an anomaly, as RUN/incidents/step-XXXXXXXX-sample-XXXXXXXX/incident.json stores it. The same directory
/// has a checkpoint of the weights that the step was computed with. With its config and the data files the step can be
/// computed again, on any layout.
struct Incident {
  Index step = 0;
  Anomaly anomaly = Anomaly::none;
  SpikePolicy policy = SpikePolicy::proceed;
  double loss = 0;
  double gradient_norm = 0;
  std::optional<SpikeScores> scores;
  double threshold = 0;  ///< of the scores
  IndexRange samples;    ///< global samples
  double loss_scale = 1;
  std::string layout;
};

/// The incident of a step, from its report.
Incident incident_of(const StepReport& report, const RunConfig& config, const std::string& layout);

/// One line: the anomaly, its samples, and what happens to the step.
std::string to_text(const Incident& incident);

/// The folder of an incident inside a run.
Path incident_path(const Path& run_directory, const Incident& incident);

/// Writes the folder, unless it exists or there are `stability.keep_incidents` others: the first ones are the most
/// useful. Called before the step's update. Collective. @returns the folder; empty where nothing was written.
Path store_incident(const Incident& incident, const Trainer& trainer, const RunConfig& config, const ProcessMesh& mesh);

/// @throws Error (usage) if the path is no incident, Error (data) if it is damaged.
Incident read_incident(const Path& path);

/// Notes each spike of the loop, and stores the first ones. A failed write does not end the run.
class IncidentNotes : public LoopObserver {
 public:
  /// What is given must outlive it.
  IncidentNotes(const RunContext& run, const Trainer& trainer, CheckpointSaver& saver)
      : run_(run), trainer_(trainer), saver_(saver) {}

  void before_anomaly(const StepReport& report) override;

 private:
  const RunContext& run_;
  const Trainer& trainer_;
  CheckpointSaver& saver_;
};

}  // namespace espalier
