// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/model_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier {
namespace {

// "the nearest that are: 8 and 12"; below the divisor there is one only.
std::string nearest_multiples(Index value, Index divisor) {
  const Index below = value / divisor * divisor;
  return below == 0 ? fmt::format("the nearest that is: {}", divisor)
                    : fmt::format("the nearest that are: {} and {}", below, below + divisor);
}

}  // namespace

std::vector<std::string> problems(const ModelConfig& model) {
  std::vector<std::string> found;
  const auto positive = [&](const char* name, Index value) {
    if (value <= 0)
      found.push_back(fmt::format("{} is {}, wanted at least 1", name, value));
  };
  positive("vocab_size", model.vocab_size);
  if (model.positions == Positions::learned)
    positive("max_sequence_length", model.max_sequence_length);
  positive("num_layers", model.num_layers);
  positive("hidden_size", model.hidden_size);
  positive("num_heads", model.num_heads);
  positive("num_kv_heads", model.kv_heads());
  positive("ffn_hidden_size", model.ffn_hidden_size);
  const auto divisible = [&](const char* name, Index value, const char* by, Index divisor) {
    if (value > 0 && divisor > 0 && value % divisor != 0)
      found.push_back(fmt::format("{} {} is not divisible by {} {}; {}", name, value, by, divisor,
                                  nearest_multiples(value, divisor)));
  };
  divisible("hidden_size", model.hidden_size, "num_heads", model.num_heads);
  divisible("num_heads", model.num_heads, "num_kv_heads", model.kv_heads());
  return found;
}

std::vector<UnsupportedPart> unsupported_parts(const ModelConfig& model) {
  std::vector<UnsupportedPart> parts;
  if (model.kv_heads() != model.num_heads)
    parts.push_back({"grouped-query attention", fmt::format("num_kv_heads = {}", model.kv_heads()),
                     fmt::format("num_kv_heads = {}", model.num_heads)});
  if (model.gated())
    parts.push_back(
        {"a gated feed-forward", fmt::format("activation = \"{}\"", model.activation), "activation = \"gelu\""});
  if (model.norm == Norm::rmsnorm)
    parts.push_back({"RMSNorm", "norm = \"rmsnorm\"", "norm = \"layernorm\""});
  if (!model.tied_embeddings)
    parts.push_back({"an untied head", "tied_embeddings = false", "tied_embeddings = true"});
  if (model.positions != Positions::learned)
    parts.push_back({"no learned positions", "position = \"rotary\"", "position = \"learned\""});
  if (!model.bias)
    parts.push_back({"no biases", "bias = false", "bias = true"});
  if (model.dropout > 0)
    parts.push_back({"dropout", fmt::format("dropout = {}", model.dropout), "dropout = 0"});
  return parts;
}

std::string why_not_trainable(const ModelConfig& model) {
  std::vector<std::string> words;
  for (const UnsupportedPart& part : unsupported_parts(model))
    words.push_back(part.words);
  return words.empty() ? "" : fmt::format("train has no model with {} yet", fmt::join(words, ", "));
}

}  // namespace espalier
