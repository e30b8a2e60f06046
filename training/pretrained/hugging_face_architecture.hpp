// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/formats/hugging_face.hpp"
#include "models/model_config.hpp"

namespace espalier {

/// The architecture of transformers that computes a model of ours. @throws Error (usage) if there is none, with what
/// the nearest one lacks
HuggingFaceArchitecture architecture_of(const ModelConfig& model);

}  // namespace espalier
