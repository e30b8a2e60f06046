// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/pretrained/hugging_face_fields.hpp"

#include <fmt/ranges.h>

#include "core/ops/activation_names.hpp"

namespace espalier {
namespace {

using nlohmann::json;

// Ours and theirs; of several that are the same function, the first is written.
constexpr std::pair<const char*, const char*> activations[] = {{"gelu", "gelu_new"},
                                                               {"gelu", "gelu_pytorch_tanh"},
                                                               {"gelu_erf", "gelu"},
                                                               {"silu", "silu"},
                                                               {"relu", "relu"},
                                                               {"relu_squared", "relu2"},
                                                               {"swiglu", "silu"},
                                                               {"swiglu", "swish"},
                                                               {"geglu", "gelu_pytorch_tanh"},
                                                               {"geglu", "gelu_new"}};

std::string activation_named(const json& config, const char* key, const char* absent, bool gated) {
  const auto theirs = set_field_or(config, key, std::string(absent));
  std::vector<std::string> known;
  for (const auto& [ours, name] : activations) {
    if (is_gated(ours) != gated)
      continue;
    if (name == theirs)
      return ours;
    known.emplace_back(name);
  }
  refuse_field(key, config.at(key), fmt::format("one of {}", fmt::join(known, ", ")));
}

}  // namespace

std::string activation_from_hugging_face(const json& config, const char* key, const char* absent) {
  return activation_named(config, key, absent, false);
}

std::string gated_activation_from_hugging_face(const json& config, const char* key, const char* absent) {
  return activation_named(config, key, absent, true);
}

std::string activation_to_hugging_face(const std::string& ours) {
  for (const auto& [name, theirs] : activations)
    if (name == ours)
      return theirs;
  return "";
}

}  // namespace espalier
