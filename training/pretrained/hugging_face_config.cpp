// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/pretrained/hugging_face_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "io/input_limits.hpp"
#include "io/json_reader.hpp"
#include "io/records/run_paths.hpp"
#include "training/pretrained/hugging_face_fields.hpp"

namespace espalier {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Architecture = HuggingFaceArchitecture;

Architecture architecture_in(const json& config) {
  const bool is_given = config.contains("architectures");
  const auto names = is_given ? values_field<std::string>(config, "architectures") : std::vector<std::string>();
  for (const Architecture architecture : all_hugging_face_architectures())
    if (std::ranges::count(names, to_string(architecture)) > 0)
      return architecture;
  std::vector<std::string> known;
  for (const Architecture architecture : all_hugging_face_architectures())
    known.emplace_back(to_string(architecture));
  throw FieldError(is_given ? fmt::format("\"architectures\" is {:.100}", json_text(config.at("architectures")))
                            : "no \"architectures\"",
                   fmt::format("one of {}", fmt::join(known, ", ")));
}

// By its method, of which there are many.
void refuse_quantization(const json& config) {
  if (!is_set(config, "quantization_config"))
    return;
  const json& quantization = config.at("quantization_config");
  const bool has_name = quantization.is_object() && quantization.contains("quant_method");
  refuse_field("quantization_config", has_name ? quantization.at("quant_method") : quantization,
               "weights that are not quantized");
}

ModelConfig gpt2_from(const json& config) {
  ModelConfig model;
  model.vocab_size = field<Index>(config, "vocab_size", ModelRange::vocabulary);
  model.max_sequence_length = field<Index>(config, "n_positions", ModelRange::positions);
  model.num_layers = field<Index>(config, "n_layer", ModelRange::layers);
  model.hidden_size = field<Index>(config, "n_embd", ModelRange::channels);
  model.num_heads = field<Index>(config, "n_head", ModelRange::channels);
  model.ffn_hidden_size = set_field_or(config, "n_inner", 4 * model.hidden_size, ModelRange::ffn);
  model.activation = activation_from_hugging_face(config, "activation_function", "gelu_new");
  model.norm_eps = set_field_or(config, "layer_norm_epsilon", model.norm_eps, ModelRange::norm_eps);
  model.tied_embeddings = field_or(config, "tie_word_embeddings", true);
  model.embedding_dropout = field_or(config, "embd_pdrop", 0.1, ModelRange::dropout);
  model.attention_dropout = field_or(config, "attn_pdrop", 0.1, ModelRange::dropout);
  model.residual_dropout = field_or(config, "resid_pdrop", 0.1, ModelRange::dropout);
  require_value(config, "model_type", "gpt2");
  require_value(config, "scale_attn_weights", true);
  require_value(config, "scale_attn_by_inverse_layer_idx", false);
  require_value(config, "add_cross_attention", false);
  return model;
}

ordered_json gpt2_to(const ModelConfig& model) {
  return {{"model_type", "gpt2"},
          {"vocab_size", model.vocab_size},
          {"n_positions", model.max_sequence_length},
          {"n_layer", model.num_layers},
          {"n_embd", model.hidden_size},
          {"n_head", model.num_heads},
          {"n_inner", model.ffn_hidden_size},
          {"activation_function", activation_to_hugging_face(model.activation)},
          {"layer_norm_epsilon", model.norm_eps},
          {"tie_word_embeddings", model.tied_embeddings},
          {"attn_pdrop", model.attention_dropout},
          {"embd_pdrop", model.embedding_dropout},
          {"resid_pdrop", model.residual_dropout}};
}

// An id, or several of which each will do.
void require_token_ids(const char* key, const json& ids) {
  const auto is_id = [](const json& id) { return id.is_number_integer() && id >= 0 && id < LargestModel::vocabulary; };
  if (!is_id(ids) && !(ids.is_array() && !ids.empty() && std::ranges::all_of(ids, is_id)))
    refuse_field(key, ids, "the id of a token, or a list of ids");
}

// A directory of ours instead.
void refuse_own(const Path& directory, const Path& config) {
  std::error_code missing;
  const DirectoryKind kind = kind_of_directory(directory);
  if (!std::filesystem::exists(config, missing) && (kind == DirectoryKind::checkpoint || kind == DirectoryKind::run))
    throw Error(ExitCode::data, {.what = "this is a checkpoint or a run, but a Hugging Face model is needed",
                                 .where = directory.string(),
                                 .got = "no config.json",
                                 .wanted = "a directory with config.json and model.safetensors",
                                 .todo = fmt::format("make one from it: espalier checkpoint export {} --output NEW",
                                                     directory.string())});
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
  const Path path = directory / hugging_face_config_name;
  refuse_own(directory, path);
  const std::string text = read_file(path, ExitCode::data, LargestFile::record);
  ErrorReport report{.what = "the description of a Hugging Face model cannot be used",
                     .where = path.string(),
                     .wanted = "config.json of a model that Espalier supports",
                     .todo = "choose another model; docs/hugging_face.md lists what is supported"};
  HuggingFaceModel model;
  try {
    const json config = parse_json(text);
    model.architecture = architecture_in(config);
    refuse_quantization(config);
    model.config = model.architecture == Architecture::gpt2 ? gpt2_from(config)
                                                            : llama_from_hugging_face(model.architecture, config);
    model.token_ids = token_ids_in(config);
    const std::vector<BrokenRule> broken = broken_rules(model.config);
    if (!broken.empty())
      throw std::runtime_error(broken.front().sentence());
    return model;
  } catch (const Error&) {
    throw;
  } catch (const JsonError& error) {
    if (error.byte() > 0)
      report.where = position_in(path, text, error.byte());
    report.got = error.what();
    report.wanted = "JSON, as transformers writes it";
    report.todo = "correct the file, or copy it again";
  } catch (const FieldError& error) {
    report.got = error.got();
    report.wanted = error.wanted();
  } catch (const std::runtime_error& error) {
    report.got = error.what();
  }
  throw Error(ExitCode::data, report);
}

ordered_json token_ids_in(const json& config) {
  ordered_json ids = ordered_json::object();
  for (const char* const key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (is_set(config, key)) {
      require_token_ids(key, config.at(key));
      ids[key] = config.at(key);
    }
  return ids;
}

nlohmann::ordered_json hugging_face_config(const HuggingFaceModel& model, ScalarType type) {
  nlohmann::ordered_json config = {{"architectures", {to_string(model.architecture)}}};
  const ordered_json keys = model.architecture == Architecture::gpt2
                                ? gpt2_to(model.config)
                                : llama_to_hugging_face(model.architecture, model.config);
  for (const auto& [key, value] : keys.items())
    config[key] = value;
  config["bos_token_id"] = config["eos_token_id"] = nullptr;  // without these keys transformers has ids of its own
  config.update(model.token_ids);
  config["dtype"] = dtype_words(type);
  config["torch_dtype"] = dtype_words(type);  // before transformers 4.56
  return config;
}

}  // namespace espalier
