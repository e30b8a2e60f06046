// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "io/checkpoint/safetensors.hpp"
#include "training/pretrained/hugging_face_config.hpp"

namespace espalier {

/// A parameter of ours, and the part of a tensor of a Hugging Face directory that holds its values.
struct HuggingFaceParameter {
  std::string name;          ///< ours: "h.3.mlp.up.weight"
  std::vector<Index> shape;  ///< ours
  HuggingFacePart part;
};

/// All parameters of a model, as its layers declare them.
std::vector<HuggingFaceParameter> hugging_face_parameters(const HuggingFaceModel& model);

/// A Hugging Face directory to read weights from, under our names and in our shapes. model() is what its config.json
/// says.
class HuggingFaceWeights {
 public:
  /// Reads config.json and the headers. @throws Error (data) unless every parameter is there, in its shape, as
  /// floating-point numbers, and no tensor is left that the model of config.json has not.
  explicit HuggingFaceWeights(Path directory);

  const Path& directory() const { return directory_; }
  const HuggingFaceModel& model() const { return model_; }
  const std::vector<HuggingFaceParameter>& parameters() const { return parameters_; }
  const HuggingFaceParameter& parameter(const std::string& name) const;  ///< by our name. @throws Error (data)
  ScalarType type(const HuggingFaceParameter& parameter) const;          ///< as stored

  /// The part `count` from `start` on of a parameter, row-major, converted to `type`.
  void read(const HuggingFaceParameter& parameter, const std::vector<Index>& start, const std::vector<Index>& count,
            ScalarType type, void* destination) const;

  /// Where the head is tied, a file may have it all the same. Reads both, some rows at a time. @throws Error (data)
  /// unless it is the token embedding
  void require_tied_head() const;

 private:
  void require_layers() const;
  void name_tensors();
  void require_shapes() const;
  void require_no_others() const;

  Path directory_;
  HuggingFaceModel model_;
  SafetensorsReader reader_;
  std::vector<HuggingFaceParameter> parameters_;
};

/// Of a tensor without gaps.
std::size_t tensor_bytes(const std::vector<Index>& shape, ScalarType type);

/// out (columns, rows) = in (rows, columns)
void transpose_weights(void* out, const void* in, Index rows, Index columns, ScalarType type);

/// @throws Error (code) that names the tensor
void require_finite_weights(ScalarType type, std::span<const unsigned char> data, ExitCode code, const Path& where,
                            const std::string& tensor);

}  // namespace espalier
