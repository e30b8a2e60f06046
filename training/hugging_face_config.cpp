// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/hugging_face_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/input_limits.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/json_text.hpp"
#include "models/largest_model.hpp"

namespace espalier {
namespace {

using Architecture = HuggingFaceArchitecture;
using nlohmann::json;

constexpr IntegerRange channels{1, LargestModel::channels};

// A key that must have one value, or be absent: Espalier computes nothing else.
void require_value(const json& config, const char* key, const json& wanted) {
  if (config.contains(key) && config.at(key) != wanted)
    refuse_field(key, config.at(key), fmt::format("{}; Espalier computes nothing else", json_text(wanted)));
}

bool is_set(const json& config, const char* key) { return config.contains(key) && !config.at(key).is_null(); }

Architecture architecture_in(const json& config) {
  const auto names = values_field<std::string>(config, "architectures");
  for (const Architecture architecture : all_hugging_face_architectures())
    if (std::ranges::count(names, to_string(architecture)) > 0)
      return architecture;
  std::vector<std::string> known;
  for (const Architecture architecture : all_hugging_face_architectures())
    known.emplace_back(to_string(architecture));
  refuse_field("architectures", config.at("architectures"), fmt::format("one of {}", fmt::join(known, ", ")));
}

// Activation functions: our name and that of transformers.
constexpr std::pair<const char*, const char*> activations[] = {{"gelu", "gelu_new"}, {"gelu", "gelu_pytorch_tanh"},
                                                               {"gelu_erf", "gelu"}, {"silu", "silu"},
                                                               {"relu", "relu"},     {"relu_squared", "relu2"}};

std::string activation_in(const json& config, const char* key, const std::string& otherwise) {
  const auto theirs = field_or(config, key, otherwise);
  std::vector<std::string> known;
  for (const auto& [ours, name] : activations) {
    if (name == theirs)
      return ours;
    known.emplace_back(name);
  }
  refuse_field(key, config.at(key), fmt::format("one of {}", fmt::join(known, ", ")));
}

std::string name_of_activation(const std::string& ours) {
  return std::ranges::find(activations, ours, [](const auto& pair) { return std::string(pair.first); })->second;
}

ModelConfig gpt2_from(const json& config) {
  ModelConfig model;
  model.vocab_size = field<Index>(config, "vocab_size", IntegerRange{1, LargestModel::vocabulary});
  model.max_sequence_length = field<Index>(config, "n_positions", IntegerRange{1, LargestModel::positions});
  model.num_layers = field<Index>(config, "n_layer", IntegerRange{1, LargestModel::layers});
  model.hidden_size = field<Index>(config, "n_embd", channels);
  model.num_heads = field<Index>(config, "n_head", channels);
  model.ffn_hidden_size = is_set(config, "n_inner")
                              ? field<Index>(config, "n_inner", IntegerRange{1, LargestModel::ffn})
                              : 4 * model.hidden_size;
  model.activation = activation_in(config, "activation_function", "gelu_new");
  require_value(config, "layer_norm_epsilon", 1e-5);
  require_value(config, "scale_attn_weights", true);
  require_value(config, "scale_attn_by_inverse_layer_idx", false);
  require_value(config, "add_cross_attention", false);
  require_value(config, "tie_word_embeddings", true);
  return model;
}

nlohmann::ordered_json gpt2_to(const ModelConfig& model) {
  // The id that transformers takes for both where none is given.
  const json end_of_text = model.vocab_size == 50257 ? json(50256) : json();
  return {{"model_type", "gpt2"},
          {"bos_token_id", end_of_text},
          {"eos_token_id", end_of_text},
          {"vocab_size", model.vocab_size},
          {"n_positions", model.max_sequence_length},
          {"n_layer", model.num_layers},
          {"n_embd", model.hidden_size},
          {"n_head", model.num_heads},
          {"n_inner", model.ffn_hidden_size},
          {"activation_function", name_of_activation(model.activation)},
          {"layer_norm_epsilon", 1e-5},
          {"tie_word_embeddings", true},
          {"attn_pdrop", model.dropout},
          {"embd_pdrop", model.dropout},
          {"resid_pdrop", model.dropout}};
}

// The words of transformers for a type.
const char* dtype_words(ScalarType type) {
  switch (type) {
    case ScalarType::fp32: return "float32";
    case ScalarType::fp64: return "float64";
    case ScalarType::bf16: return "bfloat16";
    case ScalarType::fp16: return "float16";
  }
  return "float32";
}

}  // namespace

HuggingFaceModel read_hugging_face_config(const Path& directory) {
  const Path path = directory / "config.json";
  HuggingFaceModel model;
  std::string reason;
  try {
    const json config = parse_json(read_file(path, ExitCode::data, LargestFile::record));
    model.architecture = architecture_in(config);
    model.config = gpt2_from(config);
    const std::vector<std::string> broken = problems(model.config);
    if (!broken.empty())
      throw std::runtime_error(broken.front());
    return model;
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    reason = error.what();
  }
  throw Error(ExitCode::data, {.what = "the description of a Hugging Face model cannot be used",
                               .where = path.string(),
                               .got = reason,
                               .wanted = "config.json of a model that Espalier computes (docs/hugging_face.md)",
                               .todo = "name another model"});
}

Architecture architecture_of(const ModelConfig& model) {
  const ModelConfig gpt2;
  if (model.norm == gpt2.norm && !model.gated() && model.positions == gpt2.positions && model.bias &&
      model.tied_embeddings && model.kv_heads() == model.num_heads)
    return Architecture::gpt2;
  throw Error(ExitCode::usage, {.what = "no architecture of transformers that is known here describes this model",
                                .wanted = "a GPT-2: LayerNorm, no gate, learned positions, biases, a tied head",
                                .todo = "the checkpoint stays readable with HDF5 (docs/checkpoint_format.md)"});
}

nlohmann::ordered_json hugging_face_config(const HuggingFaceModel& model, ScalarType type) {
  nlohmann::ordered_json config = {{"architectures", {to_string(model.architecture)}}};
  const nlohmann::ordered_json keys = gpt2_to(model.config);
  for (const auto& [key, value] : keys.items())
    config[key] = value;
  config["dtype"] = dtype_words(type);
  config["torch_dtype"] = dtype_words(type);  // before transformers 4.56
  return config;
}

}  // namespace espalier
