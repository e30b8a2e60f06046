// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/file.hpp"
#include "models/formats/hugging_face.hpp"
#include "models/model_config.hpp"

// config.json of Llama and of the families built like it: Mistral, Qwen2 and Qwen3. Keys that are absent have the
// defaults of transformers, which differ by family.

namespace espalier {

/// What config.json of a Hugging Face directory says: a model without weights (those are HuggingFaceWeights).
struct HuggingFaceModel {
  HuggingFaceArchitecture architecture = HuggingFaceArchitecture::gpt2;
  ModelConfig config;
  /// Those of bos_token_id, eos_token_id and pad_token_id that are known: an id each, or a list of ids.
  nlohmann::ordered_json token_ids = nlohmann::ordered_json::object();
};

/// Default tokens per sequence: published models allow longer ones than memory does.
inline Index usual_sequence_length(const ModelConfig& model) {
  return std::min<Index>(model.max_sequence_length, 2048);
}

/// HuggingFaceModel::token_ids of a config.json or generation_config.json. @throws std::runtime_error
nlohmann::ordered_json token_ids_in(const nlohmann::json& config);

/// @throws Error (data) for a file that cannot be read, an architecture that is not known, and a setting that Espalier
/// does not compute: its key, its value and what is wanted
HuggingFaceModel read_hugging_face_config(const Path& directory);

/// config.json of a model, as all versions of transformers read it. @pre model.architecture is architecture_of(config)
nlohmann::ordered_json hugging_face_config(const HuggingFaceModel& model, ScalarType type);

/// @throws std::runtime_error with the key, for what Espalier does not compute
ModelConfig llama_from_hugging_face(HuggingFaceArchitecture architecture, const nlohmann::json& config);

/// @pre architecture_of(model) is this one
nlohmann::ordered_json llama_to_hugging_face(HuggingFaceArchitecture architecture, const ModelConfig& model);

/// The architecture of transformers that computes a model of ours. @throws Error (usage) if there is none, with what
/// the nearest one lacks
HuggingFaceArchitecture architecture_of(const ModelConfig& model);

}  // namespace espalier
