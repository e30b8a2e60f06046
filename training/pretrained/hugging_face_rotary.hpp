// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "core/ops/rotary_frequencies.hpp"

namespace espalier {

/// Rotary positions in config.json: `rope_theta` and `rope_scaling`, or `rope_parameters` (transformers 5), which
/// counts where `rope_scaling` is empty.
/// @param max_positions its `max_position_embeddings`
/// @throws std::runtime_error for a kind, or a setting, that Espalier does not compute
RotaryConfig rotary_from_hugging_face(const nlohmann::json& config, Index max_positions);

/// Adds `rope_theta` and `rope_scaling`, which all versions of transformers read.
/// @pre whole heads are rotated; with dynamic scaling, `max_position_embeddings` is rotary.original_length
void add_rotary_to_hugging_face(nlohmann::ordered_json& config, const RotaryConfig& rotary);

}  // namespace espalier
