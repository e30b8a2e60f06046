// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "training/pretrained/hugging_face_weights.hpp"

// Converts models of Hugging Face to checkpoints of Espalier, and back, tensor by tensor: it needs memory for three
// times the largest tensor.

namespace espalier {

/// Writes DIRECTORY/checkpoints/step-00000000 with the weights, and the files of the tokenizer into
/// DIRECTORY/tokenizer. `train --init-from DIRECTORY` starts from it. Returns the checkpoint's path.
/// @pre the directory is new or empty. An error leaves there what was written so far
/// (io/checkpoint/partial_directory.hpp).
/// @param tokenizer the fingerprint of the model's; empty: unknown
Path import_hugging_face(const HuggingFaceWeights& weights, const Path& from, const Path& directory,
                         const std::string& tokenizer = "");

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

/// Names of the files of a tokenizer that the directory has.
std::vector<std::string> tokenizer_files(const Path& directory);

/// Copies those files.
void copy_tokenizer(const Path& from, const Path& to);

/// Keeps the ids of special tokens that a directory has, unless `to` has some: its generation_config.json, or one made
/// from its config.json. @throws Error (data)
void keep_token_ids(const Path& from, const Path& to);

/// HuggingFaceModel::token_ids of the generation_config.json of a directory; empty where there is none.
/// @throws Error (data)
nlohmann::ordered_json kept_token_ids(const Path& directory);

}  // namespace espalier
