// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/scalars.hpp"

// Names and shapes of parameters in models of Hugging Face (transformers), as their `state_dict` has them.

namespace espalier {

/// Families by the class in `architectures` of config.json. They differ in names and in what their blocks consist of.
enum class HuggingFaceArchitecture { gpt2, llama, mistral, qwen2, qwen3 };
const char* to_string(HuggingFaceArchitecture architecture);  ///< "GPT2LMHeadModel"
const std::vector<HuggingFaceArchitecture>& all_hugging_face_architectures();

/// What the names of all tensors but the head begin with: "model.". Files of the trunk alone are without it.
std::string hugging_face_trunk(HuggingFaceArchitecture architecture);

/// Where a model of Hugging Face has the values of one of our parameters.
struct HuggingFacePart {
  std::string tensor;
  std::vector<Index> shape;  ///< of that tensor
  bool transposed = false;   ///< it is (in, out), and our weight is (out, in)
  Index first = 0;           ///< the output of that tensor that is our first: GPT-2 has Q, K and V in one
};

/// @param parameter our name: "h.3.attention.query.weight"
/// @param shape ours
/// @pre a layer of the name exists in the architecture
HuggingFacePart hugging_face_part(HuggingFaceArchitecture architecture, const std::string& parameter,
                                  const std::vector<Index>& shape);

}  // namespace espalier
