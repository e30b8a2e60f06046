// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face as a ModelConfig, and back.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/presets.hpp"
#include "tests/training/hugging_face_models.hpp"
#include "training/pretrained/hugging_face_config.hpp"

namespace espalier::test {
namespace {

using nlohmann::json;

HuggingFaceModel model_of(const std::string& config) {
  const TemporaryDirectory directory;
  write_bytes(directory / "config.json", config);
  return read_hugging_face_config(directory.path());
}

HuggingFaceModel model_of(const json& config) { return model_of(config.dump()); }

HuggingFaceModel written_and_read(const ModelConfig& config) {
  return model_of(hugging_face_config({architecture_of(config), config}, ScalarType::bf16).dump());
}

// Of the family: the keys without which no model is described.
json least(const char* architecture) {
  return {{"architectures", {architecture}}, {"vocab_size", 100},      {"hidden_size", 64},
          {"intermediate_size", 96},         {"num_hidden_layers", 4}, {"num_attention_heads", 4}};
}

TEST(HuggingFaceConfig, WhatWasReadIsReadAgain) {
  for (const auto& [name, reference] : transformers_references()) {
    SCOPED_TRACE(name);
    const HuggingFaceModel model = model_of(reference.config);
    const HuggingFaceModel again = written_and_read(model.config);
    EXPECT_EQ(again.config, model.config);
    EXPECT_EQ(again.architecture, model.architecture);
  }
}

TEST(HuggingFaceConfig, PresetsAreWrittenAndRead) {
  for (const std::string& name : trainable_preset_names()) {
    SCOPED_TRACE(name);
    const ModelConfig model = model_preset(name);
    EXPECT_EQ(written_and_read(model).config, model);
  }
  EXPECT_EQ(architecture_of(model_preset("smollm2-135m")), HuggingFaceArchitecture::llama);
  EXPECT_EQ(architecture_of(model_preset("mistral-7b")), HuggingFaceArchitecture::mistral);
  EXPECT_EQ(architecture_of(model_preset("qwen2.5-7b")), HuggingFaceArchitecture::qwen2);
  EXPECT_EQ(architecture_of(model_preset("qwen3-4b")), HuggingFaceArchitecture::qwen3);
}

// Llama 3.2 1B, as it is published.
TEST(HuggingFaceConfig, PublishedFilesGiveThePreset) {
  const json llama = {{"architectures", {"LlamaForCausalLM"}},
                      {"attention_bias", false},
                      {"head_dim", 64},
                      {"hidden_act", "silu"},
                      {"hidden_size", 2048},
                      {"intermediate_size", 8192},
                      {"max_position_embeddings", 131072},
                      {"mlp_bias", false},
                      {"model_type", "llama"},
                      {"num_attention_heads", 32},
                      {"num_hidden_layers", 16},
                      {"num_key_value_heads", 8},
                      {"pretraining_tp", 1},
                      {"rms_norm_eps", 1e-05},
                      {"rope_scaling",
                       {{"factor", 32.0},
                        {"high_freq_factor", 4.0},
                        {"low_freq_factor", 1.0},
                        {"original_max_position_embeddings", 8192},
                        {"rope_type", "llama3"}}},
                      {"rope_theta", 500000.0},
                      {"tie_word_embeddings", true},
                      {"vocab_size", 128256}};
  EXPECT_EQ(model_of(llama).config, model_preset("llama-3.2-1b"));
  const json qwen = {{"architectures", {"Qwen2ForCausalLM"}},
                     {"hidden_act", "silu"},
                     {"hidden_size", 896},
                     {"intermediate_size", 4864},
                     {"max_position_embeddings", 32768},
                     {"max_window_layers", 24},
                     {"model_type", "qwen2"},
                     {"num_attention_heads", 14},
                     {"num_hidden_layers", 24},
                     {"num_key_value_heads", 2},
                     {"rms_norm_eps", 1e-06},
                     {"rope_theta", 1000000.0},
                     {"sliding_window", 32768},
                     {"tie_word_embeddings", true},
                     {"use_sliding_window", false},
                     {"vocab_size", 151936}};
  EXPECT_EQ(model_of(qwen).config, model_preset("qwen2.5-0.5b"));
}

// Read by transformers 5.24 the same way (configuration_*.py).
TEST(HuggingFaceConfig, AbsentKeysAreWhatTransformersTakes) {
  const ModelConfig llama = model_of(least("LlamaForCausalLM")).config;
  EXPECT_EQ(llama.max_sequence_length, 2048);
  EXPECT_EQ(llama.kv_heads(), 4);
  EXPECT_EQ(llama.head_size(), 16);
  EXPECT_EQ(llama.norm_eps, 1e-6);
  EXPECT_EQ(llama.rotary, RotaryConfig{});
  EXPECT_EQ(llama.rotary.theta, 10000);
  EXPECT_EQ(llama.activation, "swiglu");
  EXPECT_FALSE(llama.tied_embeddings || llama.bias || llama.qkv_bias || llama.qk_norm);
  EXPECT_EQ(llama.window, 0);

  json config = least("MistralForCausalLM");
  config["num_attention_heads"] = 32;
  config["hidden_size"] = 256;
  const ModelConfig mistral = model_of(config).config;
  EXPECT_EQ(mistral.max_sequence_length, 131072);
  EXPECT_EQ(mistral.kv_heads(), 8);
  EXPECT_EQ(mistral.window, 4096);
  config["sliding_window"] = nullptr;
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(model_of(config).config.window, 0);
  EXPECT_EQ(model_of(config).config.kv_heads(), 32);

  config = least("Qwen3ForCausalLM");
  config["num_attention_heads"] = 32;
  const ModelConfig qwen = model_of(config).config;
  EXPECT_EQ(qwen.max_sequence_length, 32768);
  EXPECT_EQ(qwen.head_size(), 128);
  EXPECT_EQ(qwen.kv_heads(), 32);
  EXPECT_TRUE(qwen.qk_norm);
  EXPECT_EQ(qwen.window, 0);
}

TEST(HuggingFaceConfig, WindowsOfQwen) {
  json config = least("Qwen2ForCausalLM");
  config["num_key_value_heads"] = 2;
  config["sliding_window"] = 7;
  EXPECT_EQ(model_of(config).config.window, 0) << "use_sliding_window is not set";
  config["use_sliding_window"] = true;
  EXPECT_EQ(model_of(config).config.window, 0) << "max_window_layers is 28, and there are 4";
  config["max_window_layers"] = 1;
  EXPECT_EQ(model_of(config).config.window, 7);
  EXPECT_EQ(model_of(config).config.full_layers, 1);
  EXPECT_EQ(written_and_read(model_of(config).config).config, model_of(config).config);
  const json full = "full_attention", sliding = "sliding_attention";
  config["layer_types"] = {full, full, full, sliding};
  EXPECT_EQ(model_of(config).config.full_layers, 3) << "these count, not max_window_layers";
  for (const json& types : {json{full, sliding, full, sliding}, json{sliding, full, full, full}, json{full, sliding},
                            json{full, full, full, "chunked_attention"}}) {
    config["layer_types"] = types;
    expect_error(ExitCode::data, {"layer_types"}, [&] { model_of(config); });
  }
  config["layer_types"] = {full, full, full, sliding};
  config["use_sliding_window"] = false;
  expect_error(ExitCode::data, {"layer_types", "use_sliding_window"}, [&] { model_of(config); });
  config = least("MistralForCausalLM");
  config["num_key_value_heads"] = 4;
  config["layer_types"] = {full, full, sliding, sliding};
  expect_error(ExitCode::data, {"layer_types"}, [&] { model_of(config); });
  config = least("LlamaForCausalLM");
  config["layer_types"] = {full, full, full, full};
  EXPECT_EQ(model_of(config).config.window, 0);
}

TEST(HuggingFaceConfig, RotaryPositionsInAllSpellings) {
  json config = least("LlamaForCausalLM");
  const auto rotary = [&] { return model_of(config).config.rotary; };
  config["rope_theta"] = 500;
  EXPECT_EQ(rotary(), RotaryConfig{.theta = 500});
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4}};  // before transformers 4.43
  EXPECT_EQ(rotary(), (RotaryConfig{.theta = 500, .scaling = RotaryScaling::linear, .factor = 4}));
  config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  EXPECT_EQ(rotary(),
            (RotaryConfig{.theta = 500, .scaling = RotaryScaling::dynamic, .factor = 2, .original_length = 2048}));
  EXPECT_EQ(written_and_read(model_of(config).config).config, model_of(config).config);
  config["rope_scaling"] = nullptr;
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 700.0}, {"partial_rotary_factor", 1.0}};
  EXPECT_EQ(rotary(), RotaryConfig{.theta = 700});
  config["rope_parameters"] = {
      {"rope_type", "yarn"}, {"factor", nullptr},     {"original_max_position_embeddings", 512},
      {"mscale", 1.0},       {"mscale_all_dim", 0.8}, {"truncate", false},
      {"beta_fast", 16}};
  EXPECT_EQ(rotary(), (RotaryConfig{.theta = 500,
                                    .scaling = RotaryScaling::yarn,
                                    .factor = 4,
                                    .original_length = 512,
                                    .beta_fast = 16,
                                    .truncate = false,
                                    .mscale = 1,
                                    .mscale_all_dim = 0.8}));
  EXPECT_EQ(written_and_read(model_of(config).config).config, model_of(config).config);
  config["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 4}, {"attention_factor", 1.25}};
  EXPECT_EQ(rotary().attention_factor, 1.25);
  EXPECT_EQ(rotary().original_length, 2048) << "max_position_embeddings";
  EXPECT_EQ(written_and_read(model_of(config).config).config, model_of(config).config);
  for (const json& bad :
       {json{{"rope_type", "longrope"}}, json{{"rope_type", "linear"}}, json{{"rope_type", "llama3"}, {"factor", 8}},
        json{{"rope_type", "linear"}, {"factor", 0.5}}, json{{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}},
        json{{"full_attention", {{"rope_type", "default"}}}}, json{{"rope_theta", "much"}}}) {
    config["rope_parameters"] = bad;
    EXPECT_THROW(rotary(), Error) << bad;
  }
  config["rope_parameters"] = {{"rope_type", "longrope"}};
  expect_error(ExitCode::data, {"rope_type", "longrope", "default, linear, dynamic, yarn, llama3"}, rotary);
}

TEST(HuggingFaceConfig, BiasesAreOfAllLinearLayersOrNone) {
  json config = least("LlamaForCausalLM");
  config["attention_bias"] = true;
  expect_error(ExitCode::data, {"attention_bias", "mlp_bias"}, [&] { model_of(config); });
  config["mlp_bias"] = true;
  EXPECT_TRUE(model_of(config).config.bias);
  config["attention_bias"] = false;
  expect_error(ExitCode::data, {"attention_bias", "mlp_bias"}, [&] { model_of(config); });
  config = least("Qwen3ForCausalLM");
  config["num_key_value_heads"] = 4;
  config["attention_bias"] = true;
  expect_error(ExitCode::data, {"attention_bias"}, [&] { model_of(config); });
}

TEST(HuggingFaceConfig, WhatEspalierDoesNotComputeIsRefused) {
  const TransformersReference gpt2 = transformers_references().at("gpt2");
  const std::vector<std::array<std::string, 3>> bad = {
      {"\"gelu_new\"", "\"tanh\"", "activation_function"},
      {"\"layer_norm_epsilon\": 1e-05", "\"layer_norm_epsilon\": 0", "layer_norm_epsilon"},
      {"\"scale_attn_weights\": true", "\"scale_attn_weights\": false", "scale_attn_weights"},
      {"\"scale_attn_by_inverse_layer_idx\": false", "\"scale_attn_by_inverse_layer_idx\": true", "inverse_layer_idx"},
      {"\"model_type\": \"gpt2\"", "\"model_type\": \"gpt_neo\"", "model_type"},
      {"\"n_embd\": 32", "\"quantization_config\": {\"bits\": 4}, \"n_embd\": 32", "{\"bits\":4}"},
      {"\"n_embd\": 32", "\"quantization_config\": {\"quant_method\": \"awq\"}, \"n_embd\": 32", "is \"awq\""},
      {"GPT2LMHeadModel", "BloomForCausalLM",
       "[\"BloomForCausalLM\"]\n  wanted: one of GPT2LMHeadModel, LlamaForCausalLM"},
      {"\"architectures\"", "\"architecture\"", "no \"architectures\"\n  wanted: one of GPT2LMHeadModel"},
      {"\"n_layer\": 2", "\"n_layer\": 2 2", "config.json:"},
      {"\"n_layer\": 2", "\"n_layer\": -2", "n_layer"},
      {"\"n_layer\": 2", "\"n_layer\": 2.5", "n_layer"},
      {"\"n_layer\": 2", "\"n_layer\": 2000000000", "n_layer"},
      {"\"n_embd\": 32", "\"n_embd\": 2147483648", "n_embd"},
      {"\"n_head\": 4", "\"n_head\": 5", "not divisible"},
      {"\"n_head\": 4", "\"n_heads\": 4", "n_head"},
      {"{", "[", "config.json"}};
  for (const auto& [from, to, words] : bad)
    expect_error(ExitCode::data, {"config.json", words}, [&] { model_of(with_config(gpt2, from, to).config); });
  const TransformersReference llama = transformers_references().at("llama");
  expect_error(ExitCode::data, {"hidden_act", "silu"},
               [&] { model_of(with_config(llama, "\"silu\"", "\"relu\"").config); });
  expect_error(ExitCode::data, {"num_kv_heads 3"}, [&] {
    model_of(with_config(llama, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3").config);
  });
  expect_error(ExitCode::data, {"262144 times head_dim 8 is 2097152"}, [&] {
    model_of(with_config(llama, "\"num_attention_heads\": 4", "\"num_attention_heads\": 262144").config);
  });
  const TemporaryDirectory empty;
  expect_error(ExitCode::data, {"config.json"}, [&] { read_hugging_face_config(empty.path()); });
  write_bytes(empty / "config.json", "{\n  \"n_layer\": 2,\n  n_embd\n}\n");
  expect_error(ExitCode::data, {"config.json:3:4", "correct the file"},
               [&] { read_hugging_face_config(empty.path()); });
}

TEST(HuggingFaceConfig, AModelThatTransformersHasNotIsNotExported) {
  const auto expect_refused = [](const char* preset, const std::vector<std::string>& words, const auto& change) {
    ModelConfig model = model_preset(preset);
    change(model);
    expect_error(ExitCode::usage, words, [&] { architecture_of(model); });
  };
  expect_refused("byte-1m", {"GPT2LMHeadModel", "rotary positions", "no biases", "grouped heads"}, [](auto& model) {
    model.positions = Positions::rotary;
    model.bias = false;
    model.num_kv_heads = 2;
  });
  expect_refused("llama-tiny", {"LlamaForCausalLM", "a part is rotated"}, [](auto& model) { model.rotary.size = 16; });
  expect_refused("llama-tiny", {"LlamaForCausalLM", "no gate"}, [](auto& model) { model.activation = "gelu"; });
  expect_refused("mistral-tiny", {"MistralForCausalLM", "full_layers"}, [](auto& model) { model.full_layers = 1; });
  expect_refused("qwen2-tiny", {"LlamaForCausalLM", "a window"}, [](auto& model) { model.bias = true; });
  expect_refused("qwen3-tiny", {"Qwen3ForCausalLM", "biases of Q, K and V"},
                 [](auto& model) { model.qkv_bias = true; });
}

// No id is made up: those of an import are written, else null, in whose place transformers would have ids of its own.
TEST(HuggingFaceConfig, TokenIdsAreThoseOfTheFile) {
  HuggingFaceModel model{.config = model_preset("llama-tiny")};
  model.architecture = architecture_of(model.config);
  const json without = hugging_face_config(model, ScalarType::fp32);
  EXPECT_EQ(without.at("bos_token_id"), nullptr);
  EXPECT_EQ(without.at("eos_token_id"), nullptr);
  EXPECT_FALSE(without.contains("pad_token_id"));
  model.token_ids = {{"bos_token_id", 128000}, {"eos_token_id", {128001, 128009}}, {"pad_token_id", 5}};
  EXPECT_EQ(model_of(hugging_face_config(model, ScalarType::fp32).dump()).token_ids, model.token_ids);
  for (const char* const ids : {"-1", "1.5", "\"</s>\"", "[]", "[2, null]", "{}"}) {
    json config = without;
    config["eos_token_id"] = json::parse(ids);
    expect_error(ExitCode::data, {"eos_token_id", "the id of a token"}, [&] { model_of(config.dump()); });
  }
}

}  // namespace
}  // namespace espalier::test
