// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.hpp"
#include "training/pretrained/hugging_face_config.hpp"
#include "training/pretrained/hugging_face_fields.hpp"

namespace espalier {
namespace {

using Architecture = HuggingFaceArchitecture;

bool has_window(const ModelConfig& model) { return model.window_of(model.num_layers - 1) > 0; }

Architecture nearest_architecture(const ModelConfig& model) {
  if (model.norm == Norm::layernorm)
    return Architecture::gpt2;
  if (model.qk_norm)
    return Architecture::qwen3;
  if (model.bias)
    return Architecture::llama;
  if (model.qkv_bias)
    return Architecture::qwen2;
  return has_window(model) ? Architecture::mistral : Architecture::llama;
}

// What the model has and the architecture has not, or the other way round: words, and where they hold.
std::vector<std::string> differences_from(Architecture architecture, const ModelConfig& model) {
  const bool is_gpt2 = architecture == Architecture::gpt2, is_llama = architecture == Architecture::llama;
  const bool is_rotary = model.positions == Positions::rotary;
  const std::pair<bool, std::string> differences[] = {
      {activation_to_hugging_face(model.activation).empty(), "activation " + model.activation},
      {model.gated() == is_gpt2, model.gated() ? "a gate" : "no gate"},
      {is_gpt2 ? model.positions != Positions::learned : !is_rotary,
       fmt::format("{} positions", to_string(model.positions))},
      {is_rotary && model.rotary_size() != model.head_size(), "heads of which a part is rotated"},
      {is_gpt2 ? !model.bias : !is_llama && model.bias, model.bias ? "biases in all linear layers" : "no biases"},
      {is_gpt2 && model.kv_heads() != model.num_heads, "grouped heads"},
      {is_gpt2 && model.qk_norm, "a norm of Q and K"},
      {architecture == Architecture::qwen3 && model.qkv_bias, "biases of Q, K and V"},
      {(is_gpt2 || is_llama) && has_window(model), "a window"},
      {architecture == Architecture::mistral && model.full_layers > 0, "full_layers"},
      {is_gpt2 && model.q_size() != model.hidden_size, "heads of another size than hidden_size / num_heads"},
      {is_llama && model.hidden_size % model.num_heads != 0, "a hidden_size that num_heads does not divide"}};
  std::vector<std::string> found;
  for (const auto& [differs, words] : differences)
    if (differs)
      found.push_back(words);
  return found;
}

}  // namespace

Architecture architecture_of(const ModelConfig& model) {
  const Architecture nearest = nearest_architecture(model);
  const std::vector<std::string> differences = differences_from(nearest, model);
  if (differences.empty())
    return nearest;
  throw Error(ExitCode::usage,
              {.what = "no supported architecture of transformers computes this model",
               .got = fmt::format("{} is the nearest, but lacks: {}", to_string(nearest), fmt::join(differences, ", ")),
               .wanted = "a model like GPT-2, Llama, Mistral, Qwen2 or Qwen3 (docs/hugging_face.md)",
               .todo = "read the checkpoint with HDF5 instead (docs/checkpoint_format.md)"});
}

}  // namespace espalier
