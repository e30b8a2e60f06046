// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/presets.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace espalier {
namespace {

using Preset = std::pair<std::string, ModelConfig>;

ModelConfig gpt(Index layers, Index hidden, Index heads, Index vocab, Index positions) {
  return {.vocab_size = vocab,
          .max_sequence_length = positions,
          .num_layers = layers,
          .hidden_size = hidden,
          .num_heads = heads,
          .ffn_hidden_size = 4 * hidden};
}

// RMSNorm, a gate, rotary positions, no biases and an untied head.
ModelConfig llama(Index layers, Index hidden, Index heads, Index kv_heads, Index ffn, Index vocab, Index positions,
                  double theta, double norm_eps = 1e-5) {
  return {.vocab_size = vocab,
          .max_sequence_length = positions,
          .num_layers = layers,
          .hidden_size = hidden,
          .num_heads = heads,
          .ffn_hidden_size = ffn,
          .num_kv_heads = kv_heads,
          .norm = Norm::rmsnorm,
          .norm_eps = norm_eps,
          .activation = "swiglu",
          .positions = Positions::rotary,
          .rotary = {.theta = theta},
          .tied_embeddings = false,
          .bias = false};
}

ModelConfig tied(ModelConfig model) {
  model.tied_embeddings = true;
  return model;
}

// Llama 3.1 and later: Llama 3, taught longer sequences.
ModelConfig llama31(Index layers, Index hidden, Index heads, Index ffn, double factor = 8) {
  ModelConfig model = llama(layers, hidden, heads, 8, ffn, 128256, 131072, 5e5);
  model.rotary.scaling = RotaryScaling::llama3;
  model.rotary.factor = factor;
  model.rotary.original_length = 8192;
  return model;
}

ModelConfig with_window(ModelConfig model, Index window, Index full_layers = 0) {
  model.window = window;
  model.full_layers = full_layers;
  return model;
}

ModelConfig qwen25(Index layers, Index hidden, Index heads, Index kv_heads, Index ffn, Index vocab, Index positions) {
  ModelConfig model = llama(layers, hidden, heads, kv_heads, ffn, vocab, positions, 1e6, 1e-6);
  model.qkv_bias = true;
  return model;
}

ModelConfig qwen3(Index layers, Index hidden, Index heads, Index ffn) {
  ModelConfig model = llama(layers, hidden, heads, 8, ffn, 151936, 40960, 1e6, 1e-6);
  model.head_dim = 128;
  model.qk_norm = true;
  return model;
}

// As small as the byte-* models: what is peculiar to a family, with numbers that show a mix-up.
ModelConfig llama_tiny() {
  ModelConfig model = llama(4, 128, 4, 2, 352, 256, 256, 5e5);
  model.rotary.scaling = RotaryScaling::llama3;
  model.rotary.factor = 8;
  model.rotary.original_length = 64;
  return model;
}

ModelConfig qwen2_tiny() {
  ModelConfig model = with_window(tied(llama(3, 96, 4, 2, 256, 256, 256, 1e6, 1e-6)), 64, 1);
  model.qkv_bias = true;
  return model;
}

ModelConfig qwen3_tiny() {
  ModelConfig model = tied(llama(2, 64, 4, 2, 192, 256, 256, 1e6, 1e-6));
  model.head_dim = 32;
  model.qk_norm = true;
  return model;
}

ModelConfig with_alibi(ModelConfig model) {
  model.positions = Positions::alibi;
  return model;
}

// gpt2-*: Radford et al. 2019; byte-*: small ones that read bytes; gpt3-*: Brown et al. 2020, Table 2.1; 76b to 1t:
// Narayanan et al. 2021, Table 1; bloom: Le Scao et al. 2022; "200b": a shape between those of Narayanan's 145b and
// 310b. Llama, Mistral, Qwen and SmolLM: config.json of the models that their makers published. Of Mistral 7B it is
// v0.1, the one with a window. Qwen2.5 is that before instruction tuning, Qwen3 that after.
const std::vector<Preset>& presets() {
  static const std::vector<Preset> table = {
      {"gpt2-124m", gpt(12, 768, 12, 50257, 1024)},
      {"gpt2-355m", gpt(24, 1024, 16, 50257, 1024)},
      {"gpt2-774m", gpt(36, 1280, 20, 50257, 1024)},
      {"gpt2-1558m", gpt(48, 1600, 25, 50257, 1024)},
      {"byte-1m", gpt(4, 128, 4, 256, 256)},
      {"byte-3m", gpt(4, 256, 4, 256, 256)},
      {"byte-11m", gpt(6, 384, 6, 256, 512)},
      {"gpt3-1.3b", gpt(24, 2048, 16, 50257, 2048)},
      {"gpt3-2.7b", gpt(32, 2560, 32, 50257, 2048)},
      {"gpt3-6.7b", gpt(32, 4096, 32, 50257, 2048)},
      {"gpt3-13b", gpt(40, 5120, 40, 50257, 2048)},
      {"gpt-22b", gpt(48, 6144, 64, 51200, 2048)},
      {"gpt-30b", gpt(48, 7168, 56, 50304, 2048)},
      {"gpt-76b", gpt(60, 10240, 80, 51200, 2048)},
      {"gpt-145b", gpt(80, 12288, 96, 51200, 2048)},
      {"gpt3-175b", gpt(96, 12288, 96, 51200, 2048)},
      {"gpt-200b", gpt(96, 13056, 96, 51200, 2048)},
      {"gpt-310b", gpt(96, 16384, 128, 51200, 2048)},
      {"gpt-530b", gpt(105, 20480, 128, 51200, 2048)},
      {"gpt-1t", gpt(128, 25600, 160, 51200, 2048)},
      {"bloom-176b", with_alibi(gpt(70, 14336, 112, 250880, 0))},
      {"llama-tiny", llama_tiny()},
      {"mistral-tiny", with_window(llama(3, 96, 4, 2, 256, 256, 256, 1e4), 64)},
      {"qwen2-tiny", qwen2_tiny()},
      {"qwen3-tiny", qwen3_tiny()},
      {"smollm2-135m", tied(llama(30, 576, 9, 3, 1536, 49152, 8192, 1e5))},
      {"smollm2-360m", tied(llama(32, 960, 15, 5, 2560, 49152, 8192, 1e5))},
      {"llama2-7b", llama(32, 4096, 32, 32, 11008, 32000, 4096, 1e4)},
      {"llama2-13b", llama(40, 5120, 40, 40, 13824, 32000, 4096, 1e4)},
      {"llama2-70b", llama(80, 8192, 64, 8, 28672, 32000, 4096, 1e4)},
      {"llama3-8b", llama(32, 4096, 32, 8, 14336, 128256, 8192, 5e5)},
      {"llama3-70b", llama(80, 8192, 64, 8, 28672, 128256, 8192, 5e5)},
      {"llama-3.1-8b", llama31(32, 4096, 32, 14336)},
      {"llama-3.1-70b", llama31(80, 8192, 64, 28672)},
      {"llama-3.1-405b", llama31(126, 16384, 128, 53248)},
      {"llama-3.2-1b", tied(llama31(16, 2048, 32, 8192, 32))},
      {"llama-3.2-3b", tied(llama31(28, 3072, 24, 8192, 32))},
      {"mistral-7b", with_window(llama(32, 4096, 32, 8, 14336, 32000, 32768, 1e4), 4096)},
      {"qwen2.5-0.5b", tied(qwen25(24, 896, 14, 2, 4864, 151936, 32768))},
      {"qwen2.5-1.5b", tied(qwen25(28, 1536, 12, 2, 8960, 151936, 131072))},
      {"qwen2.5-3b", tied(qwen25(36, 2048, 16, 2, 11008, 151936, 32768))},
      {"qwen2.5-7b", qwen25(28, 3584, 28, 4, 18944, 152064, 131072)},
      {"qwen3-0.6b", tied(qwen3(28, 1024, 16, 3072))},
      {"qwen3-1.7b", tied(qwen3(28, 2048, 16, 6144))},
      {"qwen3-4b", tied(qwen3(36, 2560, 32, 9728))},
      {"qwen3-8b", qwen3(36, 4096, 32, 12288)},
  };
  return table;
}

}  // namespace

const std::vector<std::string>& model_preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& [name, model] : presets())
      all.push_back(name);
    return all;
  }();
  return names;
}

const std::vector<std::string>& trainable_preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> trainable = model_preset_names();
    std::erase_if(trainable, [](const std::string& name) { return !unsupported_parts(model_preset(name)).empty(); });
    return trainable;
  }();
  return names;
}

ModelConfig model_preset(const std::string& name) {
  const auto found = std::ranges::find(presets(), name, &Preset::first);
  if (found != presets().end())
    return in_one_spelling(found->second);
  throw Error(ExitCode::usage,
              {.what = "unknown model preset",
               .got = name.empty() ? "nothing" : name,
               .wanted = fmt::format("one of {}", fmt::join(model_preset_names(), ", ")),
               .todo = "set model.preset (or --model) to one of these; other shapes: keys of [model]"});
}

}  // namespace espalier
