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

ModelConfig llama(Index layers, Index hidden, Index heads, Index kv_heads, Index ffn, Index vocab, bool tied = false) {
  return {.vocab_size = vocab,
          .max_sequence_length = 0,
          .num_layers = layers,
          .hidden_size = hidden,
          .num_heads = heads,
          .ffn_hidden_size = ffn,
          .num_kv_heads = kv_heads == heads ? 0 : kv_heads,
          .norm = Norm::rmsnorm,
          .activation = "swiglu",
          .positions = Positions::rotary,
          .tied_embeddings = tied,
          .bias = false};
}

ModelConfig with_alibi(ModelConfig model) {
  model.positions = Positions::alibi;
  return model;
}

// gpt2-*: Radford et al. 2019; byte-*: small ones that read bytes; gpt3-*: Brown et al. 2020, Table 2.1; 76b to 1t:
// Narayanan et al. 2021, Table 1; bloom: Le Scao et al. 2022; llama: Touvron et al. 2023, Dubey et al. 2024; "200b": a
// shape between those of Narayanan's 145b and 310b.
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
      {"llama2-7b", llama(32, 4096, 32, 32, 11008, 32000)},
      {"llama2-13b", llama(40, 5120, 40, 40, 13824, 32000)},
      {"llama2-70b", llama(80, 8192, 64, 8, 28672, 32000)},
      {"llama3-1b", llama(16, 2048, 32, 8, 8192, 128256, true)},
      {"llama3-3b", llama(28, 3072, 24, 8, 8192, 128256, true)},
      {"llama3-8b", llama(32, 4096, 32, 8, 14336, 128256)},
      {"llama3-70b", llama(80, 8192, 64, 8, 28672, 128256)},
      {"llama3-405b", llama(126, 16384, 128, 8, 53248, 128256)},
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
    return found->second;
  throw Error(ExitCode::usage,
              {.what = "unknown model preset",
               .got = name.empty() ? "nothing" : name,
               .wanted = fmt::format("one of {}", fmt::join(model_preset_names(), ", ")),
               .todo = "set model.preset (or --model) to one of these; other shapes: keys of [model]"});
}

}  // namespace espalier
