// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "training/step/trainer.hpp"

namespace espalier {

/// How one launch of a run differs from its config.
struct TrainOptions {
  std::string resume = "auto";  ///< auto: from the newest complete checkpoint, if any; never; or a checkpoint or run
  std::string init_from;        ///< a checkpoint or run whose weights the run starts from
  Index stop_after = 0;         ///< steps of this launch, then save and stop; 0: none
  bool retry = false;           ///< launch although several launches have made no progress
  std::string program = "unknown";  ///< name and version, for run.json
  bool new_data = false;            ///< resume even if the token files are not those of the checkpoint
};

/// What the console prints besides the step itself.
struct TrainProgress {
  Index total_steps = 0;
  double tokens_per_second = 0;    ///< of this step
  double seconds_left = 0;         ///< to the end of the run, at the pace of this launch
  double seconds_to_save = 0;      ///< to the next save; the run ends with one
  double gemm_fraction = 0;        ///< matmul FLOP/s over the GEMM rate of all ranks, measured at the start
  std::optional<double> mfu = {};  ///< model FLOP/s over the peak of all devices, where it is known
};

struct TrainEvents {
  /// Called on every rank when the run begins to write into its directory. From now on requests to stop are handled in
  /// time. Before, they are checked between long operations, and killing the process loses nothing.
  std::function<void()> begins;
  // On rank 0 only.
  std::function<void(const std::string&)> note;
  std::function<void(const StepReport&, const TrainProgress&)> step;
  std::function<void(Index step, double loss)> validation;
};

enum class TrainOutcome { completed, stopped, not_begun };

/// A whole run in its directory: resume, steps, evaluations, saves, metrics, run.json. Collective over the mesh.
/// `stop_request` says what asks this rank to stop ("SIGTERM"), or nothing. It is asked before the run
/// begins, in each step, between the batches of a validation and while a save is waited for. A request on any
/// rank stops all of them, with a checkpoint and without a validation, and stands in run.json. Afterwards the progress
/// of this rank says whether it came to the end.
TrainOutcome train(const RunConfig& config, const TrainOptions& options, const Layout& layout, const ProcessMesh& mesh,
                   const TrainEvents& events, const std::function<std::string()>& stop_request);

}  // namespace espalier
