// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

// Activation functions in config.json. There a gate is part of the family, here of the function: "silu" is our "swiglu"
// where the feed-forward has a gate.

namespace espalier {

/// Our name of `config[key]`, without and with a gate. @throws std::runtime_error for a function that Espalier has not
std::string activation_from_hugging_face(const nlohmann::json& config, const char* key, const char* absent);
std::string gated_activation_from_hugging_face(const nlohmann::json& config, const char* key, const char* absent);

/// The name there; empty where transformers has none.
std::string activation_to_hugging_face(const std::string& ours);

}  // namespace espalier
