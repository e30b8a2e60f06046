// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint_reader.hpp"
#include "io/safetensors.hpp"
#include "training/hugging_face_config.hpp"

// Models of Hugging Face to checkpoints of Espalier, and back. Tensor by tensor: memory is wanted for up to three times
// the largest one.

namespace espalier {

/// A parameter of ours and where its values lie in a Hugging Face directory.
struct ForeignParameter {
  std::string name;          ///< ours: "h.3.mlp.up.weight"
  std::vector<Index> shape;  ///< ours
  HuggingFacePart part;
};

/// All parameters of a model, as its layers declare them.
std::vector<ForeignParameter> foreign_parameters(const HuggingFaceModel& model);

/// Weights of a Hugging Face directory under our names and in our shapes.
class ForeignWeights {
 public:
  /// Reads config.json and the headers. @throws Error (data) unless every parameter is there, in its shape, as
  /// floating-point numbers.
  explicit ForeignWeights(const Path& directory);

  const HuggingFaceModel& model() const { return model_; }
  const std::vector<ForeignParameter>& parameters() const { return parameters_; }
  ScalarType type(const ForeignParameter& parameter) const;  ///< as stored

  /// The part `count` from `start` on of a parameter, row-major, converted to `type`.
  void read(const ForeignParameter& parameter, const std::vector<Index>& start, const std::vector<Index>& count,
            ScalarType type, void* destination) const;

 private:
  HuggingFaceModel model_;
  SafetensorsReader reader_;
  std::vector<ForeignParameter> parameters_;
};

/// Writes DIRECTORY/checkpoints/step-00000000 with the weights, and the files of the tokenizer into
/// DIRECTORY/tokenizer. `train --init-from DIRECTORY` starts from it. Returns the checkpoint's path.
/// @pre the directory is new or empty. Who calls removes what an error leaves there; no checkpoint is among that.
Path import_hugging_face(const ForeignWeights& weights, const Path& from, const Path& directory);

/// What an export writes.
struct ExportPlan {
  HuggingFaceModel model;
  std::vector<SafetensorsWriter::Tensor> tensors;
};

/// @throws Error (checkpoint) unless the checkpoint is of the model in its own config; (usage) where transformers has
/// no such model
ExportPlan plan_export(const CheckpointReader& checkpoint, ScalarType type);

/// Writes config.json and the weights into `directory`, which exists. Returns the names of the files.
std::vector<std::string> export_hugging_face(const CheckpointReader& checkpoint, const ExportPlan& plan,
                                             const Path& directory, Index shard_bytes);

/// Copies the files of a tokenizer that `from` has; returns their names.
std::vector<std::string> copy_tokenizer(const Path& from, const Path& to);

}  // namespace espalier
