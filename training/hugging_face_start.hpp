// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "training/trainer.hpp"

// A run that starts from the weights of a Hugging Face directory, `train --init-from DIRECTORY`, without an import.

namespace espalier {

/// Has the directory a config.json, and is it neither a run, nor an import, nor a checkpoint of ours?
bool is_hugging_face_directory(const Path& directory);

/// Overrides that set [model] and [rotary] from config.json of the directory ("model.num_layers=12"), and
/// batch.sequence_length unless it or model.max_sequence_length is set. Empty if the config or the command line sets
/// another key of these sections itself (dropout may be set), or if the directory is not one of Hugging Face.
/// @throws Error (data) of config.json
std::vector<std::string> settings_from_hugging_face(const Path& directory, const Path& config_file,
                                                    const std::vector<std::string>& overrides);

/// Fills the weights that this rank holds, and the masters; other parts of the files are not read. Collective.
/// @throws Error (data) for weights that cannot be used, (usage) when [model] describes another model
template <class P>
void load_hugging_face_weights(const Path& directory, const RunConfig& config, const Communicator& world,
                               const Trainer<P>& trainer);

}  // namespace espalier
