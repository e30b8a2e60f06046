// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/pretrained/hugging_face_rotary.hpp"

#include <fmt/ranges.h>

#include "training/pretrained/hugging_face_fields.hpp"

namespace espalier {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// transformers takes `rope_scaling` first.
const json& rotary_parameters_in(const json& config) {
  static const json none = json::object();
  for (const char* const key : {"rope_scaling", "rope_parameters"})
    if (is_set(config, key) && !config.at(key).empty())
      return object_field(config, key);
  return none;
}

RotaryScaling scaling_in(const json& parameters) {
  const char* const key = is_set(parameters, "rope_type") ? "rope_type" : "type";
  const auto name = set_field_or(parameters, key, std::string(to_string(RotaryScaling::none)));
  std::vector<std::string> known;
  for (const RotaryScaling scaling : all_rotary_scalings) {
    if (name == to_string(scaling))
      return scaling;
    known.emplace_back(to_string(scaling));
  }
  refuse_field(key, parameters.at(key), fmt::format("one of {}", fmt::join(known, ", ")));
}

}  // namespace

RotaryConfig rotary_from_hugging_face(const json& config, Index max_positions) {
  const json& parameters = rotary_parameters_in(config);
  for (const auto& [key, value] : parameters.items())
    if (value.is_object())
      refuse_field(key.c_str(), value, "one set of rotary parameters for all layers");
  for (const json* const place : {&config, &parameters})
    if (is_set(*place, "partial_rotary_factor"))
      require_value(*place, "partial_rotary_factor", 1.0);  // transformers has no other in these families
  RotaryConfig rotary;
  rotary.theta = is_set(parameters, "rope_theta")
                     ? field<double>(parameters, "rope_theta", ModelRange::rotary_theta)
                     : set_field_or(config, "rope_theta", rotary.theta, ModelRange::rotary_theta);
  rotary.scaling = scaling_in(parameters);
  const auto original_length = [&] {
    return set_field_or(parameters, "original_max_position_embeddings", max_positions, ModelRange::positions);
  };
  switch (rotary.scaling) {
    case RotaryScaling::none: break;
    case RotaryScaling::linear: rotary.factor = field<double>(parameters, "factor", ModelRange::rotary_factor); break;
    case RotaryScaling::dynamic:
      rotary.factor = field<double>(parameters, "factor", ModelRange::rotary_factor);
      rotary.original_length = max_positions;
      break;
    case RotaryScaling::yarn:
      rotary.original_length = original_length();
      rotary.factor = is_set(parameters, "factor")
                          ? field<double>(parameters, "factor", ModelRange::rotary_factor)
                          : static_cast<double>(max_positions) / static_cast<double>(rotary.original_length);
      rotary.beta_fast = set_field_or(parameters, "beta_fast", rotary.beta_fast, ModelRange::rotary_bound);
      rotary.beta_slow = set_field_or(parameters, "beta_slow", rotary.beta_slow, ModelRange::rotary_bound);
      rotary.truncate = set_field_or(parameters, "truncate", rotary.truncate);
      rotary.mscale = set_field_or(parameters, "mscale", 0.0, ModelRange::yarn_factor);
      rotary.mscale_all_dim = set_field_or(parameters, "mscale_all_dim", 0.0, ModelRange::yarn_factor);
      rotary.attention_factor = set_field_or(parameters, "attention_factor", 0.0, above_min(ModelRange::yarn_factor));
      break;
    case RotaryScaling::llama3:
      rotary.factor = field<double>(parameters, "factor", ModelRange::rotary_factor);
      rotary.original_length = original_length();
      rotary.low_frequency_factor = field<double>(parameters, "low_freq_factor", ModelRange::rotary_bound);
      rotary.high_frequency_factor = field<double>(parameters, "high_freq_factor", ModelRange::rotary_bound);
      break;
  }
  return rotary;
}

void add_rotary_to_hugging_face(ordered_json& config, const RotaryConfig& rotary) {
  config["rope_theta"] = rotary.theta;
  ordered_json scaling;
  if (rotary.scaling != RotaryScaling::none) {
    scaling["rope_type"] = to_string(rotary.scaling);
    scaling["factor"] = rotary.factor;
  }
  if (rotary.scaling == RotaryScaling::yarn || rotary.scaling == RotaryScaling::llama3)
    scaling["original_max_position_embeddings"] = rotary.original_length;
  if (rotary.scaling == RotaryScaling::llama3) {
    scaling["low_freq_factor"] = rotary.low_frequency_factor;
    scaling["high_freq_factor"] = rotary.high_frequency_factor;
  }
  if (rotary.scaling == RotaryScaling::yarn) {
    scaling["beta_fast"] = rotary.beta_fast;
    scaling["beta_slow"] = rotary.beta_slow;
    scaling["truncate"] = rotary.truncate;
    for (const auto& [key, value] : {std::pair("mscale", rotary.mscale),
                                     {"mscale_all_dim", rotary.mscale_all_dim},
                                     {"attention_factor", rotary.attention_factor}})
      if (value > 0)
        scaling[key] = value;
  }
  config["rope_scaling"] = scaling;
}

}  // namespace espalier
