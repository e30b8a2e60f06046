// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/model_config.hpp"

// Names and shapes of parameters in models of Hugging Face (transformers), as their `state_dict` has them.

namespace espalier {

/// Families by the class in `architectures` of config.json. They differ in names and in what their blocks consist of.
enum class HuggingFaceArchitecture { gpt2, llama, mistral, qwen2, qwen3 };

/// "GPT2LMHeadModel", ...
const char* to_string(HuggingFaceArchitecture architecture);
const std::vector<HuggingFaceArchitecture>& all_hugging_face_architectures();

/// Where the values of one of our parameters lie there.
struct HuggingFacePart {
  std::string tensor;
  std::vector<Index> shape;  ///< of that tensor
  bool transposed = false;   ///< (in, out), where our weight is (out, in)
  Index first = 0;           ///< its output that is our first: Q, K and V of GPT-2 are one tensor
};

/// @param parameter our name: "h.3.attention.query.weight"
/// @throws std::logic_error for a name that no decoder has
HuggingFacePart hugging_face_part(HuggingFaceArchitecture architecture, const ModelConfig& model,
                                  const std::string& parameter);

}  // namespace espalier
