// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "diagnosis/recorded_run.hpp"
#include "planning/pipeline_time.hpp"

// What a typical step of a run was made of, and what the schedule makes of it: the numbers that findings are read from.

namespace espalier {

/// A typical step of one rank: medians over the steps looked at, but for `data` and `checkpoint`, of which rare long
/// ones matter as well: means.
struct RankProfile {
  PerAxis coordinates = PerAxis::coordinates(0, 0, 0);
  PhaseSeconds seconds;
  double activation_transit = 0;  ///< seconds of a message on its way; 0: never seen
  double gradient_transit = 0;
  double compute() const { return seconds[Phase::forward] + seconds[Phase::backward]; }
};

struct StepProfile {
  Index first_step = 0;  ///< of those looked at: of the last launch, without its first, 200 at most
  Index last_step = 0;
  Index num_steps = 0;
  double step_seconds = 0;        ///< without saves
  double stall_seconds = 0;       ///< of data: mean over steps of the slowest rank
  int stalled_rank = 0;           ///< it, most often
  double checkpoint_seconds = 0;  ///< a step, as a mean
  double tokens_per_second = 0;   ///< of all ranks, a median like those that follow; 0: unknown
  double gemm_fraction = 0;       ///< of the GEMM rate measured at launch; 0: unknown
  double mfu = 0;                 ///< of the devices' peak; 0: unknown
  std::vector<RankProfile> ranks;

  /// What each stage should have to compute, in any unit, and who says so.
  std::vector<double> stage_work;
  std::string work_source;
  double work_tolerance = 0;  ///< share by which ranks of unlike stages may differ from it and mean nothing

  /// Seconds of forward and backward of a rank of each stage on this host, as a calibrated prediction has them; empty
  /// without one, and of ranks on several hosts.
  std::vector<double> calibrated_compute;
  double calibrated_error = 0;  ///< share that it may be wrong by

  double total_seconds() const { return step_seconds + checkpoint_seconds; }
};

/// @pre the run has steps and times of all its ranks.
StepProfile profile_steps(const RecordedRun& run);

/// Seconds that a stage of each replica works on a step: the slowest of its tensor ranks, and their exchange.
/// [replica][stage]
std::vector<std::vector<double>> work_of_replicas(const RecordedRun& run, const StepProfile& profile);

/// The pipeline of a run whose stages work so many seconds a step, divided among micro-batches and chunks, with forward
/// and backward in the measured proportion. Without messages.
PipelineCosts pipeline_of(const RecordedRun& run, const StepProfile& profile, const std::vector<double>& stage_seconds);

}  // namespace espalier
