// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "training/loop/train_loop.hpp"

namespace espalier {

/// What `train --init-from` names must be there, and be of the model that the config describes: asked before anything
/// slow. A run that goes on from a checkpoint of its own needs it no more. Reads headers, no weights.
/// @throws Error (checkpoint) where nothing of use is there or a checkpoint is of another model, (usage) when [model]
/// contradicts config.json, (data) for files of Hugging Face that cannot be used
void require_init_from(const RunConfig& config, const TrainOptions& options);

}  // namespace espalier
