// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "io/file.hpp"
#include "training/checkpoint/checkpoint_saver.hpp"
#include "training/loop/loop_observer.hpp"

namespace espalier {

/// A step that stood out, as RUN/incidents/step-XXXXXXXX-sample-XXXXXXXX/incident.json tells it. Beside it lie the
/// weights that the step was computed with (checkpoints/): with the config inside them and the data files, all that it
/// takes to compute the step again, on any layout.
struct Incident {
  Index step = 0;
  Anomaly anomaly = Anomaly::none;
  std::string policy;  ///< stability.on_spike
  double loss = 0;
  double gradient_norm = 0;
  std::optional<SpikeScores> scores;
  double threshold = 0;  ///< of the scores
  IndexRange samples;    ///< global samples
  double loss_scale = 1;
  std::string layout;
};

/// What a step's report says of it.
Incident incident_of(const StepReport& report, const RunConfig& config, const std::string& layout);

/// One line: what stood out, in which samples, and what becomes of it.
std::string to_text(const Incident& incident);

/// The folder of an incident inside a run.
Path incident_path(const Path& run_directory, const Incident& incident);

/// Writes the folder, unless it is there already or there are `stability.keep_incidents` others: the first ones tell
/// most. Called before the step's update. Collective. @returns the folder; empty where nothing was written.
template <class P>
Path store_incident(const Incident& incident, const Trainer<P>& trainer, const RunConfig& config,
                    const ProcessMesh& mesh);

/// @throws Error (usage) for a path that is no incident, Error (data) for a damaged one.
Incident read_incident(const Path& path);

/// Notes each spike of the loop, and keeps the first ones. One that cannot be kept is no reason to end the run.
template <class P>
class IncidentNotes : public LoopObserver {
 public:
  /// What is given must outlive it.
  IncidentNotes(const RunContext& run, const Trainer<P>& trainer, CheckpointSaver<P>& saver)
      : run_(run), trainer_(trainer), saver_(saver) {}

  void before_anomaly(const StepReport& report) override;

 private:
  const RunContext& run_;
  const Trainer<P>& trainer_;
  CheckpointSaver<P>& saver_;
};

}  // namespace espalier
