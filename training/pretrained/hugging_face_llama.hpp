// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "models/formats/hugging_face.hpp"
#include "models/model_config.hpp"

// config.json of Llama and of the families built like it: Mistral, Qwen2 and Qwen3. Keys that are absent have the
// defaults of transformers, which differ by family.

namespace espalier {

/// @throws std::runtime_error with the key, for what Espalier does not compute
ModelConfig llama_from_hugging_face(HuggingFaceArchitecture architecture, const nlohmann::json& config);

/// @pre architecture_of(model) is this one
nlohmann::ordered_json llama_to_hugging_face(HuggingFaceArchitecture architecture, const ModelConfig& model);

}  // namespace espalier
