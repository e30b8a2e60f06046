// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "training/checkpoint/stored_state.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier {

/// Bits depend on the GEMM library, so where the config leaves the choice, that of the checkpoint is taken if it is
/// here.
void keep_matmul_library(const StoredState& state, const RunConfig& config,
                         const std::function<void(const std::string&)>& note);

/// Decides where a start goes on, and loads it. Collective; all ranks take the same checkpoint or all refuse. Only
/// reads. `owner`: the id of the run; checkpoints of others count only where the options name one. `note` tells what
/// was taken, what was passed over, and why.
/// @returns the step to go on after, 0 for a fresh start.
/// @throws Error (checkpoint) when there are checkpoints but none can be used: a run never starts over silently;
/// (usage) when the config is not that of the checkpoint's run, or of the run that left none.
template <class P>
Index resume_training(const TrainOptions& options, const Path& checkpoints, const std::string& owner,
                      const RunConfig& config, const ProcessMesh& mesh, Trainer<P>& trainer,
                      const std::function<void(const std::string&)>& note);

/// The error of a run that diverged, with where the run can be taken up among its checkpoints, if there are any.
Error with_way_back(const Error& error, const Path& checkpoints, const std::string& owner);

/// What `train --init-from` names must be there, and be of the model that the config describes: asked before anything
/// slow. A run that goes on from a checkpoint of its own needs it no more. Reads headers, no weights.
/// @throws Error (checkpoint) where nothing of use is there or a checkpoint is of another model, (usage) when [model]
/// contradicts config.json, (data) for files of Hugging Face that cannot be used
void require_init_from(const RunConfig& config, const TrainOptions& options);

}  // namespace espalier
