// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "training/pretrained/hugging_face_weights.hpp"
#include "training/step/trainer.hpp"

// `train --init-from DIRECTORY` with a Hugging Face directory: a run takes its weights without an import.

namespace espalier {

/// Overrides that set what the config and the command line do not give of [model], [rotary] and batch.sequence_length,
/// from config.json of the directory ("model.num_layers=12"). Empty if they name a preset, or if the directory is not
/// one of Hugging Face.
/// @throws Error (data) of config.json
std::vector<std::string> settings_from_hugging_face(const Path& directory, const Path& config_file,
                                                    const std::vector<std::string>& overrides);

/// The config must describe the model of the weights. Its max_sequence_length, without a table, and its dropout are
/// free. @throws Error (usage) that lists the keys that differ
void require_same_model(const HuggingFaceWeights& weights, const RunConfig& config);

/// Fills the weights that this rank holds, and the master weights; other parts of the files are not read. Collective.
/// @throws Error (data) for weights that cannot be used, (usage) when [model] describes another model
void load_hugging_face_weights(const Path& directory, const RunConfig& config, const Communicator& world,
                               const Trainer& trainer);

}  // namespace espalier
