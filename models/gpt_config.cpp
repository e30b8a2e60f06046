// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/gpt_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "core/error.hpp"

namespace espalier {
namespace {

// vocabulary, positions, layers, hidden, heads, feed-forward. GPT-2: Radford et al., 2019; the small ones read bytes.
const std::vector<std::pair<std::string, GptConfig>>& presets() {
  static const std::vector<std::pair<std::string, GptConfig>> table = {
      {"gpt2-124m", {50257, 1024, 12, 768, 12, 3072}},  {"gpt2-355m", {50257, 1024, 24, 1024, 16, 4096}},
      {"gpt2-774m", {50257, 1024, 36, 1280, 20, 5120}}, {"gpt2-1558m", {50257, 1024, 48, 1600, 25, 6400}},
      {"byte-1m", {256, 256, 4, 128, 4, 512}},          {"byte-3m", {256, 256, 4, 256, 4, 1024}},
      {"byte-11m", {256, 512, 6, 384, 6, 1536}},
  };
  return table;
}

// "the nearest that are: 8 and 12"; below the divisor there is one only.
std::string nearest_multiples(Index value, Index divisor) {
  const Index below = value / divisor * divisor;
  return below == 0 ? fmt::format("the nearest that is: {}", divisor)
                    : fmt::format("the nearest that are: {} and {}", below, below + divisor);
}

}  // namespace

std::vector<std::string> problems(const GptConfig& config) {
  std::vector<std::string> found;
  const auto positive = [&](const char* name, Index value) {
    if (value <= 0)
      found.push_back(fmt::format("{} is {}, wanted at least 1", name, value));
  };
  positive("vocab_size", config.vocab_size);
  positive("max_sequence_length", config.max_sequence_length);
  positive("num_layers", config.num_layers);
  positive("hidden_size", config.hidden_size);
  positive("num_heads", config.num_heads);
  positive("ffn_hidden_size", config.ffn_hidden_size);
  if (config.num_heads > 0 && config.hidden_size > 0 && config.hidden_size % config.num_heads != 0)
    found.push_back(fmt::format("hidden_size {} is not divisible by num_heads {}; {}", config.hidden_size,
                                config.num_heads, nearest_multiples(config.hidden_size, config.num_heads)));
  return found;
}

std::vector<std::string> gpt_preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, config] : presets())
    names.push_back(name);
  return names;
}

GptConfig gpt_preset(const std::string& name) {
  for (const auto& [preset, config] : presets())
    if (preset == name)
      return config;
  throw Error(ExitCode::usage,
              {.what = "unknown model preset",
               .got = name,
               .wanted = fmt::format("one of {}", fmt::join(gpt_preset_names(), ", ")),
               .todo = "set model.preset (or --model) to one of these; other shapes: keys of [model]"});
}

}  // namespace espalier
