// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "io/json_fields.hpp"
#include "io/pack/json_text.hpp"
#include "models/model_ranges.hpp"

// What the readers of config.json share. There null often means that a key is absent.

// Activation functions in config.json. There a gate is part of the family, here of the function: "silu" is our "swiglu"
// where the feed-forward has a gate.

namespace espalier {

inline bool is_set(const nlohmann::json& config, const char* key) {
  return config.contains(key) && !config.at(key).is_null();
}

/// `config[key]`, or `otherwise` where it is absent or null. @throws std::runtime_error
template <class T, class... Range>
T set_field_or(const nlohmann::json& config, const char* key, T otherwise, Range... range) {
  return is_set(config, key) ? field<T>(config, key, range...) : std::move(otherwise);
}

/// A key that must have one value, or be absent: Espalier computes nothing else.
inline void require_value(const nlohmann::json& config, const char* key, const nlohmann::json& wanted) {
  if (config.contains(key) && config.at(key) != wanted)
    refuse_field(key, config.at(key), fmt::format("{}; Espalier computes nothing else", json_text(wanted)));
}

/// Our name of `config[key]`, without and with a gate. @throws std::runtime_error for a function that Espalier has not
std::string activation_from_hugging_face(const nlohmann::json& config, const char* key, const char* absent);
std::string gated_activation_from_hugging_face(const nlohmann::json& config, const char* key, const char* absent);

/// The name there; empty where transformers has none.
std::string activation_to_hugging_face(const std::string& ours);

}  // namespace espalier
