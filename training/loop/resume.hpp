// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "training/checkpoint/stored_state.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier {

/// Chooses the GEMM library of the checkpoint, as the bits depend on it, if the config leaves the choice and this
/// program has that library.
void restore_matmul_library(const StoredState& state, const RunConfig& config,
                            const std::function<void(const std::string&)>& note);

/// Decides which checkpoint a launch resumes from, and loads it. Collective; all ranks take the same checkpoint or all
/// refuse. Only reads. `owner`: the id of the run; checkpoints of others count only where the options name one. `note`
/// gets what was taken, what was passed over, and why.
/// @returns the step to resume after, 0 for a new run.
/// @throws Error (checkpoint) when there are checkpoints but none can be used: a run never starts over silently;
/// (usage) when the config is not that of the checkpoint's run, or of the run that left none.
Index resume_training(const TrainOptions& options, const Path& checkpoints, const std::string& owner,
                      const RunConfig& config, const ProcessMesh& mesh, Trainer& trainer,
                      const std::function<void(const std::string&)>& note);

/// The error of a run that diverged, and the checkpoints that the run can be resumed from, if there are any.
Error with_resume_hint(const Error& error, const Path& checkpoints, const std::string& owner);

/// Checks before anything slow that what `train --init-from` names exists, and is of the model of the config. A run
/// that resumes from a checkpoint of its own does not need it. Reads headers, no weights.
/// @throws Error (checkpoint) where nothing of use is there or a checkpoint is of another model, (usage) when [model]
/// contradicts config.json, (data) for files of Hugging Face that cannot be used
void require_init_from(const RunConfig& config, const TrainOptions& options);

}  // namespace espalier
