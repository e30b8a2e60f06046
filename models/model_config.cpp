// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/model_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/nearest_sizes.hpp"
#include "models/largest_model.hpp"

namespace espalier {
const char* to_string(Norm norm) { return norm == Norm::layernorm ? "layernorm" : "rmsnorm"; }

const char* to_string(Positions positions) {
  switch (positions) {
    case Positions::learned: return "learned";
    case Positions::rotary: return "rotary";
    case Positions::alibi: return "alibi";
  }
  return "unknown";
}

ModelConfig in_one_spelling(ModelConfig model) {
  if (model.num_kv_heads == model.num_heads)
    model.num_kv_heads = 0;
  if (model.head_dim * model.num_heads == model.hidden_size)
    model.head_dim = 0;
  return model;
}

namespace {

using Rules = std::vector<BrokenRule>;

void check_sizes(Rules& broken, const ModelConfig& model) {
  const auto positive = [&](const char* key, Index value) {
    if (value <= 0)
      broken.push_back({"model", key, fmt::format("is {}, wanted at least 1", value), {}});
  };
  positive("vocab_size", model.vocab_size);
  if (model.positions == Positions::learned)
    positive("max_sequence_length", model.max_sequence_length);
  positive("num_layers", model.num_layers);
  positive("hidden_size", model.hidden_size);
  positive("num_heads", model.num_heads);
  positive("num_kv_heads", model.kv_heads());
  positive("ffn_hidden_size", model.ffn_hidden_size);
}

void check_heads(Rules& broken, const ModelConfig& model) {
  const auto divisible = [&](const char* key, Index value, const char* by, Index divisor) {
    if (value > 0 && divisor > 0 && value % divisor != 0)
      broken.push_back({"model",
                        key,
                        fmt::format("{} is not divisible by {} {}; the nearest that are: {}", value, by, divisor,
                                    fmt::join(nearest_multiples(value, divisor), " and ")),
                        {fmt::format("model.{}", by)}});
  };
  if (model.head_dim == 0)
    divisible("hidden_size", model.hidden_size, "num_heads", model.num_heads);
  divisible("num_heads", model.num_heads, "num_kv_heads", model.kv_heads());
  if (model.num_heads > 0 && model.q_size() > LargestModel::channels)
    broken.push_back({"model",
                      "num_heads",
                      fmt::format("{} times head_dim {} is {} channels, wanted at most {}", model.num_heads,
                                  model.head_size(), model.q_size(), LargestModel::channels),
                      {"model.head_dim"}});
}

void check_rotary(Rules& broken, const ModelConfig& model) {
  const RotaryConfig& rotary = model.rotary;
  if (const Index size = model.rotary_size(); size != 0 && (size < 2 || size % 2 != 0 || size > model.head_size())) {
    const bool is_given = rotary.size != 0;
    broken.push_back(
        {is_given ? "rotary" : "model",
         is_given ? "size" : "head_dim",
         fmt::format("is {}, wanted an even number of channels to rotate, at most {}", size, model.head_size()),
         {}});
  }
  if (model.positions != Positions::rotary || rotary.scaling == RotaryScaling::none)
    return;
  if (rotary.factor < 1)
    broken.push_back({"rotary", "factor", fmt::format("is {}, wanted at least 1", rotary.factor), {}});
  if (rotary.scaling != RotaryScaling::linear && rotary.original_length < 1)
    broken.push_back({"rotary",
                      "original_length",
                      fmt::format("is {}, wanted the positions that the model was trained on", rotary.original_length),
                      {}});
  if (rotary.scaling == RotaryScaling::dynamic && model.rotary_size() < 4)
    broken.push_back({"rotary", "scaling", "\"dynamic\" needs at least 4 rotated channels per head", {}});
  if (rotary.scaling == RotaryScaling::llama3 && rotary.high_frequency_factor <= rotary.low_frequency_factor)
    broken.push_back({"rotary",
                      "high_frequency_factor",
                      fmt::format("is {}, wanted more than low_frequency_factor {}", rotary.high_frequency_factor,
                                  rotary.low_frequency_factor),
                      {"rotary.low_frequency_factor"}});
}

}  // namespace

std::vector<BrokenRule> broken_rules(const ModelConfig& model) {
  Rules broken;
  check_sizes(broken, model);
  check_heads(broken, model);
  check_rotary(broken, model);
  return broken;
}

std::vector<UnsupportedPart> unsupported_parts(const ModelConfig& model) {
  std::vector<UnsupportedPart> parts;
  if (model.positions == Positions::alibi)
    parts.push_back({"ALiBi", "position", "\"alibi\"", "\"rotary\" or \"learned\""});
  return parts;
}

std::string why_not_trainable(const ModelConfig& model) {
  std::vector<std::string> words;
  for (const UnsupportedPart& part : unsupported_parts(model))
    words.push_back(part.words);
  return words.empty() ? "" : fmt::format("train has no model with {} yet", fmt::join(words, ", "));
}

std::optional<BrokenRule> broken_length_rule(const ModelConfig& model, Index sequence_length) {
  if (sequence_length <= model.max_sequence_length)
    return std::nullopt;
  return BrokenRule{.section = "batch",
                    .key = "sequence_length",
                    .message = fmt::format("{} is longer than the model's max_sequence_length {}", sequence_length,
                                           model.max_sequence_length),
                    .others = {"model.max_sequence_length"}};
}

}  // namespace espalier
