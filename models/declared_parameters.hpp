// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/parameter_spec.hpp"
#include "models/layer_partition.hpp"
#include "models/model_config.hpp"

namespace espalier {

/// Which part of each tensor a rank holds.
struct TensorPart {
  int rank = 0;
  int size = 1;
  bool sequence_parallel = false;
  Index row_multiple = 1;  ///< LogitSizes::multiple
  bool operator==(const TensorPart&) const = default;
};

/// The parameters that layers declare, as they lie in the flat arrays of a rank (core/parameter.hpp); without names.
struct DeclaredParameters {
  std::vector<Parameter> parameters;
  std::vector<Segment> segments;
  Index flat_size = 0;

  Index num_elements() const;  ///< of this rank, without padding
  Index num_tensors() const;   ///< those that one matmul takes together are one
  Index num_stored() const;    ///< with the rows of zeros of TensorPart::row_multiple
};

/// What the layers of a model declare: recorded from one of each kind, without memory.
class ParameterRecording {
 public:
  ParameterRecording(const ModelConfig& model, const TensorPart& part);

  /// The parameters of a rank with these chunks.
  DeclaredParameters of(const std::vector<ChunkLayers>& chunks) const;

  const DeclaredParameters& block() const { return block_; }
  const DeclaredParameters& embedding() const { return embedding_; }
  const DeclaredParameters& table() const { return table_; }  ///< of the tokens, where a stage holds it for a tied head
  const DeclaredParameters& head() const { return head_; }

  /// Elements of matrices on this rank: of a block, of its feed-forward, of the table of the tokens.
  Index block_matrices() const { return block_matrices_; }
  Index feed_forward_matrices() const { return feed_forward_matrices_; }
  Index table_matrices() const { return table_.num_elements(); }

 private:
  DeclaredParameters embedding_;
  DeclaredParameters table_;
  DeclaredParameters block_;
  DeclaredParameters head_;
  Index block_matrices_ = 0;
  Index feed_forward_matrices_ = 0;
  bool tied_;
};

/// All parameters of a model, as one rank holds them, with names.
std::vector<Parameter> whole_parameters(const ModelConfig& model);

/// The recording, cached: valid until another model is asked for.
const ParameterRecording& parameter_recording(const ModelConfig& model, const TensorPart& part);

}  // namespace espalier
