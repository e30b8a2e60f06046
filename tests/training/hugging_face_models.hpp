// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "tests/io/support.hpp"
#include "tests/support/tensors.hpp"
#include "tests/training/transformers_reference_gpt2.hpp"
#include "tests/training/transformers_reference_llama.hpp"
#include "tests/training/transformers_reference_qwen.hpp"
#include "training/pretrained/hugging_face.hpp"

// The tiny models of transformers_reference.py: its weights and tokens, which are closed forms.

namespace espalier::test {

inline TransformersReferences transformers_references() {
  TransformersReferences all = transformers_gpt2();
  all.insert(transformers_llama().begin(), transformers_llama().end());
  all.insert(transformers_qwen().begin(), transformers_qwen().end());
  return all;
}

inline std::uint32_t reference_hash(std::uint32_t stream, std::uint32_t index) {
  std::uint32_t x = index * 2654435761u + stream * 2246822519u + 374761393u;
  x = (x ^ (x >> 15)) * 2246822519u;
  x = (x ^ (x >> 13)) * 3266489917u;
  return x ^ (x >> 16);
}

inline double reference_value(std::uint32_t stream, std::size_t index) {
  return (static_cast<double>(reference_hash(stream, static_cast<std::uint32_t>(index)) >> 16) - 32768) / 131072;
}

inline double pattern(const Values& values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    sum += values[i] * reference_value(999, i);
  return sum;
}

/// How a model is written, beside its values.
struct ModelFiles {
  Index shard_bytes = Index{1} << 30;
  bool has_trunk = true;                                  ///< names begin with that of the trunk
  std::map<std::string, std::vector<Index>> others = {};  ///< further tensors; their values are those of `copies_of`
  std::string copies_of = {};
};

/// config.json and the weights, as transformers would save them.
inline void write_model(const Path& directory, const TransformersReference& reference, ScalarType type,
                        const ModelFiles& files = {}) {
  std::filesystem::create_directories(directory);
  write_bytes(directory / "config.json", reference.config);
  const HuggingFaceModel model = read_hugging_face_config(directory);
  std::map<std::string, std::vector<Index>> shapes;
  for (const HuggingFaceParameter& parameter : hugging_face_parameters(model))
    shapes[parameter.part.tensor] = parameter.part.shape;
  std::map<std::string, std::uint32_t> streams;
  for (const auto& [name, shape] : shapes)
    streams.emplace(name, static_cast<std::uint32_t>(streams.size()));
  for (const auto& [name, shape] : files.others) {
    shapes[name] = shape;
    streams[name] = files.copies_of.empty() ? 77 : streams.at(files.copies_of);
  }
  const std::string trunk = hugging_face_trunk(model.architecture);
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const auto& [name, shape] : shapes)
    tensors.push_back({!files.has_trunk && name.starts_with(trunk) ? name.substr(trunk.size()) : name, type, shape});
  SafetensorsWriter writer(directory, tensors, files.shard_bytes);
  for (const auto& [name, shape] : shapes) {
    const bool is_norm_weight =
        (name.find("norm") != name.npos || name.find("ln_") != name.npos) && name.ends_with("weight");
    std::vector<double> wide;
    std::vector<float> narrow;
    std::vector<bfloat16> half;
    for (Index i = 0; i < num_elements(shape); ++i) {
      wide.push_back(reference_value(streams.at(name), static_cast<std::size_t>(i)) + (is_norm_weight ? 1 : 0));
      narrow.push_back(static_cast<float>(wide.back()));
      half.emplace_back(narrow.back());
    }
    writer.write(type == ScalarType::fp64   ? static_cast<const void*>(wide.data())
                 : type == ScalarType::fp32 ? static_cast<const void*>(narrow.data())
                                            : static_cast<const void*>(half.data()));
  }
  writer.finish();
}

/// The reference with another text in its config.json.
inline TransformersReference with_config(TransformersReference reference, const std::string& from,
                                         const std::string& to) {
  const std::size_t place = reference.config.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  reference.config.replace(place, from.size(), to);
  return reference;
}

}  // namespace espalier::test
