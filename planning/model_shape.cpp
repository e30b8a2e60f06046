// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/model_shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "io/nearest_word.hpp"
#include "planning/real.hpp"

namespace espalier {
namespace {

ModelShape gpt(std::string name, Index layers, Index hidden, Index heads, Index vocab, Index positions) {
  return {.name = std::move(name),
          .num_layers = layers,
          .hidden_size = hidden,
          .num_heads = heads,
          .num_kv_heads = heads,
          .ffn_hidden_size = 4 * hidden,
          .vocab_size = vocab,
          .max_sequence_length = positions};
}

ModelShape llama(std::string name, Index layers, Index hidden, Index heads, Index kv_heads, Index ffn, Index vocab,
                 bool tied = false) {
  return {.name = std::move(name),
          .num_layers = layers,
          .hidden_size = hidden,
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .ffn_hidden_size = ffn,
          .vocab_size = vocab,
          .max_sequence_length = 0,
          .gated_ffn = true,
          .rms_norm = true,
          .tied_embeddings = tied,
          .bias = false};
}

// gpt3-*: Brown et al. 2020, Table 2.1; 76b to 1t: Narayanan et al. 2021, Table 1; bloom: Le Scao et al. 2022;
// llama: Touvron et al. 2023, Dubey et al. 2024; "200b": a shape between those of Narayanan's 145b and 310b.
const std::vector<ModelShape>& shapes() {
  static const std::vector<ModelShape> table = [] {
    std::vector<ModelShape> shapes;
    for (const std::string& name : gpt_preset_names())
      shapes.push_back(model_shape(gpt_preset(name), name));
    const std::vector<ModelShape> large = {
        gpt("gpt3-1.3b", 24, 2048, 16, 50257, 2048),
        gpt("gpt3-2.7b", 32, 2560, 32, 50257, 2048),
        gpt("gpt3-6.7b", 32, 4096, 32, 50257, 2048),
        gpt("gpt3-13b", 40, 5120, 40, 50257, 2048),
        gpt("gpt-22b", 48, 6144, 64, 51200, 2048),
        gpt("gpt-30b", 48, 7168, 56, 50304, 2048),
        gpt("gpt-76b", 60, 10240, 80, 51200, 2048),
        gpt("gpt-145b", 80, 12288, 96, 51200, 2048),
        gpt("gpt3-175b", 96, 12288, 96, 51200, 2048),
        gpt("gpt-200b", 96, 13056, 96, 51200, 2048),
        gpt("gpt-310b", 96, 16384, 128, 51200, 2048),
        gpt("gpt-530b", 105, 20480, 128, 51200, 2048),
        gpt("gpt-1t", 128, 25600, 160, 51200, 2048),
        gpt("bloom-176b", 70, 14336, 112, 250880, 0),  // ALiBi: no table
        llama("llama2-7b", 32, 4096, 32, 32, 11008, 32000),
        llama("llama2-13b", 40, 5120, 40, 40, 13824, 32000),
        llama("llama2-70b", 80, 8192, 64, 8, 28672, 32000),
        llama("llama3-1b", 16, 2048, 32, 8, 8192, 128256, true),
        llama("llama3-3b", 28, 3072, 24, 8, 8192, 128256, true),
        llama("llama3-8b", 32, 4096, 32, 8, 14336, 128256),
        llama("llama3-70b", 80, 8192, 64, 8, 28672, 128256),
        llama("llama3-405b", 126, 16384, 128, 8, 53248, 128256),
    };
    shapes.insert(shapes.end(), large.begin(), large.end());
    return shapes;
  }();
  return table;
}

}  // namespace

double matrix_parameters_per_layer(const ModelShape& model) {
  const double c = real(model.hidden_size);
  const double attention = c * (c + 2 * real(model.kv_size())) + c * c;
  return attention + (model.gated_ffn ? 3 : 2) * c * real(model.ffn_hidden_size);
}

double parameters_per_layer(const ModelShape& model) {
  const double c = real(model.hidden_size);
  const double norms = (model.rms_norm ? 2 : 4) * c;
  const double biases =
      model.bias ? c + 2 * real(model.kv_size()) + c + (model.gated_ffn ? 2 : 1) * real(model.ffn_hidden_size) + c : 0;
  return matrix_parameters_per_layer(model) + norms + biases;
}

double embedding_parameters(const ModelShape& model) {
  return (real(model.vocab_size) + real(model.max_sequence_length)) * real(model.hidden_size);
}

double head_parameters(const ModelShape& model) {
  const double c = real(model.hidden_size);
  return (model.rms_norm ? 1 : 2) * c + (model.tied_embeddings ? 0 : real(model.vocab_size) * c);
}

double num_parameters(const ModelShape& model) {
  return real(model.num_layers) * parameters_per_layer(model) + embedding_parameters(model) + head_parameters(model);
}

double model_flops_per_token(const ModelShape& model, Index sequence_length) {
  const double c = real(model.hidden_size);
  const double matrices = real(model.num_layers) * matrix_parameters_per_layer(model) + real(model.vocab_size) * c;
  return 6 * matrices + 12 * real(model.num_layers) * c * real(sequence_length);
}

std::vector<std::string> problems(const ModelShape& model) {
  std::vector<std::string> found;
  const auto at_least_one = [&](const char* name, Index value) {
    if (value < 1)
      found.push_back(fmt::format("{} is {}, wanted at least 1", name, value));
  };
  at_least_one("num_layers", model.num_layers);
  at_least_one("hidden_size", model.hidden_size);
  at_least_one("num_heads", model.num_heads);
  at_least_one("num_kv_heads", model.num_kv_heads);
  at_least_one("ffn_hidden_size", model.ffn_hidden_size);
  at_least_one("vocab_size", model.vocab_size);
  if (!found.empty())
    return found;
  const auto divisible = [&](const char* name, Index value, const char* by, Index divisor) {
    const Index below = value / divisor * divisor;
    if (below != value)
      found.push_back(
          fmt::format("{} {} is not divisible by {} {}; near it are {}", name, value, by, divisor,
                      below == 0 ? fmt::format("{}", divisor) : fmt::format("{} and {}", below, below + divisor)));
  };
  divisible("hidden_size", model.hidden_size, "num_heads", model.num_heads);
  divisible("num_heads", model.num_heads, "num_kv_heads", model.num_kv_heads);
  return found;
}

ModelShape model_shape(const GptConfig& config, const std::string& name) {
  return {.name = name,
          .num_layers = config.num_layers,
          .hidden_size = config.hidden_size,
          .num_heads = config.num_heads,
          .num_kv_heads = config.num_heads,
          .ffn_hidden_size = config.ffn_hidden_size,
          .vocab_size = config.vocab_size,
          .max_sequence_length = config.max_sequence_length};
}

std::vector<std::string> model_preset_names() {
  std::vector<std::string> names;
  for (const ModelShape& shape : shapes())
    names.push_back(shape.name);
  return names;
}

ModelShape model_preset(const std::string& name) {
  for (const ModelShape& shape : shapes())
    if (shape.name == name)
      return shape;
  const std::string nearest = nearest_word(name, model_preset_names());
  throw Error(
      ExitCode::usage,
      {.what = "unknown model",
       .got = name.empty() ? "nothing" : name,
       .wanted = fmt::format("a config file (*.toml) or one of {}", fmt::join(model_preset_names(), ", ")),
       .todo = nearest.empty() ? "name one of these, or a TOML file with the shape under [model] (docs/planner.md)"
                               : fmt::format("did you mean {}?", nearest)});
}

std::vector<UntrainablePart> untrainable_parts(const ModelShape& model) {
  std::vector<UntrainablePart> parts;
  if (model.num_kv_heads != model.num_heads)
    parts.push_back({"grouped-query attention", fmt::format("num_kv_heads = {}", model.num_kv_heads),
                     fmt::format("num_kv_heads = {}", model.num_heads)});
  if (model.gated_ffn)
    parts.push_back({"a gated feed-forward", "activation = \"swiglu\"", "activation = \"gelu\""});
  if (model.rms_norm)
    parts.push_back({"RMSNorm", "norm = \"rmsnorm\"", "norm = \"layernorm\""});
  if (!model.tied_embeddings)
    parts.push_back({"an untied head", "tied_embeddings = false", "tied_embeddings = true"});
  if (model.max_sequence_length == 0)
    parts.push_back({"no learned positions", "position = \"rotary\"", "position = \"learned\""});
  if (!model.bias)
    parts.push_back({"no biases", "bias = false", "bias = true"});
  return parts;
}

std::string why_not_trainable(const ModelShape& model) {
  std::vector<std::string> words;
  for (const UntrainablePart& part : untrainable_parts(model))
    words.push_back(part.words);
  return words.empty() ? "" : fmt::format("train has no model with {} yet", fmt::join(words, ", "));
}

GptConfig trainable_config(const ModelShape& model) {
  if (const std::string reason = why_not_trainable(model); !reason.empty())
    throw Error(ExitCode::usage, {.what = "this model can be priced but not trained",
                                  .where = model.name,
                                  .got = reason,
                                  .wanted = "a GPT (LayerNorm, GELU, learned positions, tied head)",
                                  .todo = "name another model, such as gpt3-6.7b, or only price this one"});
  return {.vocab_size = model.vocab_size,
          .max_sequence_length = model.max_sequence_length,
          .num_layers = model.num_layers,
          .hidden_size = model.hidden_size,
          .num_heads = model.num_heads,
          .ffn_hidden_size = model.ffn_hidden_size};
}

}  // namespace espalier
