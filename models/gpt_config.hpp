// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// Shape of a GPT-2 class decoder: learned positions, pre-norm blocks, GELU, tied token embedding and head.
struct GptConfig {
  Index vocab_size = 50257;          ///< V
  Index max_sequence_length = 1024;  ///< P, rows of the position table
  Index num_layers = 12;             ///< L
  Index hidden_size = 768;           ///< C
  Index num_heads = 12;              ///< NH
  Index ffn_hidden_size = 3072;      ///< F, usually 4C

  bool operator==(const GptConfig&) const = default;
  Index head_size() const { return hidden_size / num_heads; }  ///< HS
};

/// Broken rules of a shape, one sentence each with the value got; empty when it can be built.
std::vector<std::string> problems(const GptConfig& config);

/// A named shape ("gpt2-124m"). @throws Error (usage) with the names known.
GptConfig gpt_preset(const std::string& name);
std::vector<std::string> gpt_preset_names();

}  // namespace espalier
