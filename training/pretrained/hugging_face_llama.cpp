// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/ops/rotary_frequencies.hpp"
#include "training/pretrained/hugging_face_config.hpp"
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

// Rotary positions in config.json: `rope_theta` and `rope_scaling`, or `rope_parameters` (transformers 5), which
// counts where `rope_scaling` is empty.
// @param max_positions its `max_position_embeddings`
// @throws std::runtime_error for a kind, or a setting, that Espalier does not compute
RotaryConfig rotary_from_hugging_face(const json& config, Index max_positions) {
  const json& parameters = rotary_parameters_in(config);
  for (const auto& [key, value] : parameters.items())
    if (value.is_object())
      refuse_field(key.c_str(), value, "one set of rotary parameters for all layers");
  for (const json* const section : {&config, &parameters})
    if (is_set(*section, "partial_rotary_factor"))
      require_value(*section, "partial_rotary_factor", 1.0);  // transformers has no other in these families
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

// Adds `rope_theta` and `rope_scaling`, which all versions of transformers read.
// @pre whole heads are rotated; with dynamic scaling, `max_position_embeddings` is rotary.original_length
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

using nlohmann::json;
using nlohmann::ordered_json;
using Architecture = HuggingFaceArchitecture;

// What transformers takes for keys that are absent.
struct Absent {
  Index kv_heads;  // 0: as many as heads
  Index positions;
  Index head_size;  // 0: hidden_size / num_attention_heads
};

Absent absent_keys(Architecture architecture) {
  switch (architecture) {
    case Architecture::mistral: return {8, 131072, 0};
    case Architecture::qwen2: return {32, 32768, 0};
    case Architecture::qwen3: return {32, 32768, 128};
    default: return {0, 2048, 0};
  }
}

constexpr Index absent_window = 4096;
constexpr Index absent_max_window_layers = 28;

bool is_qwen(Architecture architecture) {
  return architecture == Architecture::qwen2 || architecture == Architecture::qwen3;
}

// null: no window.
Index window_in(const json& config) {
  return config.contains("sliding_window") ? set_field_or(config, "sliding_window", Index{0}, ModelRange::positions)
                                           : absent_window;
}

// The first layers with full attention. Espalier has these below those with a window.
Index full_layers_in(const json& config, Index num_layers) {
  const auto types = values_field<std::string>(config, "layer_types");
  const auto refuse = [&](const std::string& wanted) { refuse_field("layer_types", config.at("layer_types"), wanted); };
  if (static_cast<Index>(types.size()) != num_layers)
    refuse(fmt::format("one for each of the {} layers", num_layers));
  for (const std::string& type : types)
    if (type != "full_attention" && type != "sliding_attention")
      refuse(fmt::format("full_attention and sliding_attention, not {:.40}", type));
  const auto first_sliding = std::ranges::find(types, "sliding_attention");
  if (std::find(first_sliding, types.end(), "full_attention") != types.end())
    refuse("full_attention of the first layers and sliding_attention of all others, in this order");
  return first_sliding - types.begin();
}

void read_window(Architecture architecture, const json& config, ModelConfig& model) {
  Index window = 0, full = 0;
  if (architecture == Architecture::mistral)
    window = window_in(config);
  if (is_qwen(architecture)) {
    window = field_or(config, "use_sliding_window", false) ? window_in(config) : 0;
    full = set_field_or(config, "max_window_layers", absent_max_window_layers, or_zero(ModelRange::layers));
  }
  if (is_set(config, "layer_types")) {
    const Index stated = full_layers_in(config, model.num_layers);
    if (is_qwen(architecture))
      full = stated;
    const Index computed = window == 0 ? model.num_layers : full;
    if (stated != computed)
      refuse_field("layer_types", config.at("layer_types"),
                   fmt::format("sliding_attention in {} layers, as sliding_window{} says", model.num_layers - computed,
                               is_qwen(architecture) ? " with use_sliding_window" : ""));
  }
  if (window > 0 && full < model.num_layers) {
    model.window = window;
    model.full_layers = full;
  }
}

void read_biases(Architecture architecture, const json& config, ModelConfig& model) {
  model.bias = false;
  model.qkv_bias = architecture == Architecture::qwen2;
  if (architecture == Architecture::qwen3)
    require_value(config, "attention_bias", false);
  if (architecture != Architecture::llama)
    return;
  model.bias = field_or(config, "attention_bias", false);
  if (field_or(config, "mlp_bias", false) != model.bias)
    refuse_field("attention_bias", model.bias,
                 "the same as mlp_bias: Espalier has biases in all linear layers of a Llama or in none");
}

const char* model_type_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::mistral: return "mistral";
    case Architecture::qwen2: return "qwen2";
    case Architecture::qwen3: return "qwen3";
    default: return "llama";
  }
}

}  // namespace

ModelConfig llama_from_hugging_face(Architecture architecture, const json& config) {
  require_value(config, "model_type", model_type_of(architecture));
  const Absent absent = absent_keys(architecture);
  ModelConfig model;
  model.vocab_size = field<Index>(config, "vocab_size", ModelRange::vocabulary);
  model.max_sequence_length = set_field_or(config, "max_position_embeddings", absent.positions, ModelRange::positions);
  model.num_layers = field<Index>(config, "num_hidden_layers", ModelRange::layers);
  model.hidden_size = field<Index>(config, "hidden_size", ModelRange::channels);
  model.num_heads = field<Index>(config, "num_attention_heads", ModelRange::channels);
  model.ffn_hidden_size = field<Index>(config, "intermediate_size", ModelRange::ffn);
  model.num_kv_heads = config.contains("num_key_value_heads")
                           ? set_field_or(config, "num_key_value_heads", model.num_heads, ModelRange::channels)
                           : absent.kv_heads;
  model.head_dim =
      set_field_or(config, "head_dim", absent.head_size == 0 ? model.hidden_size / model.num_heads : absent.head_size,
                   ModelRange::channels);
  model.norm = Norm::rmsnorm;
  model.norm_eps = set_field_or(config, "rms_norm_eps", 1e-6, ModelRange::norm_eps);
  model.activation = gated_activation_from_hugging_face(config, "hidden_act", "silu");
  model.positions = Positions::rotary;
  model.rotary = rotary_from_hugging_face(config, model.max_sequence_length);
  model.tied_embeddings = field_or(config, "tie_word_embeddings", false);
  model.attention_dropout = field_or(config, "attention_dropout", 0.0, ModelRange::dropout);
  model.qk_norm = architecture == Architecture::qwen3;
  read_biases(architecture, config, model);
  read_window(architecture, config, model);
  return in_one_spelling(model);
}

ordered_json llama_to_hugging_face(Architecture architecture, const ModelConfig& model) {
  ordered_json config = {{"model_type", model_type_of(architecture)}};
  const bool is_dynamic = model.rotary.scaling == RotaryScaling::dynamic;
  config["vocab_size"] = model.vocab_size;
  config["max_position_embeddings"] = is_dynamic ? model.rotary.original_length : model.max_sequence_length;
  config["num_hidden_layers"] = model.num_layers;
  config["hidden_size"] = model.hidden_size;
  config["num_attention_heads"] = model.num_heads;
  config["num_key_value_heads"] = model.kv_heads();
  config["head_dim"] = model.head_size();
  config["intermediate_size"] = model.ffn_hidden_size;
  config["hidden_act"] = activation_to_hugging_face(model.activation);
  config["rms_norm_eps"] = model.norm_eps;
  add_rotary_to_hugging_face(config, model.rotary);
  config["tie_word_embeddings"] = model.tied_embeddings;
  config["attention_dropout"] = model.attention_dropout;
  if (architecture == Architecture::llama)
    config["mlp_bias"] = model.bias;
  if (architecture == Architecture::llama || architecture == Architecture::qwen3)
    config["attention_bias"] = model.bias;
  const bool has_window = model.window_of(model.num_layers - 1) > 0;
  if (is_qwen(architecture)) {
    config["use_sliding_window"] = has_window;
    config["max_window_layers"] = has_window ? model.full_layers : model.num_layers;
  }
  if (architecture != Architecture::llama)
    config["sliding_window"] = has_window ? ordered_json(model.window) : ordered_json();
  return config;
}

}  // namespace espalier
