// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "io/file.hpp"
#include "models/formats/hugging_face.hpp"
#include "models/model_config.hpp"

namespace espalier {

/// What config.json of a Hugging Face directory describes.
struct HuggingFaceModel {
  HuggingFaceArchitecture architecture = HuggingFaceArchitecture::gpt2;
  ModelConfig config;
};

/// @throws Error (data) for a file that cannot be read, an architecture that is not known, and a setting that Espalier
/// does not compute: its key, its value and what is wanted
HuggingFaceModel read_hugging_face_config(const Path& directory);

/// config.json of a model, as all versions of transformers read it. @pre model.architecture is architecture_of(config)
nlohmann::ordered_json hugging_face_config(const HuggingFaceModel& model, ScalarType type);

}  // namespace espalier
