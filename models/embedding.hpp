// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/arena.hpp"
#include "models/linear.hpp"
#include "models/logit_rows.hpp"
#include "models/model_config.hpp"

namespace espalier {

/// Token and learned position embedding (core/ops/embedding). The token table is cut by rows over the tensor axis,
/// evenly up to one row; it is also the weight of the head. Every rank holds the positions. Residual is the type of
/// the residual stream.
template <class T, class Residual = T>
class VocabParallelEmbedding {
 public:
  VocabParallelEmbedding(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const ModelConfig& config,
                         Placement placement);

  void forward(const ExecSpace& exec, Tensor<Residual, 2> x /* (R, C) */, Tensor<TokenId, 1> tokens /* (N) */,
               Index sequence_length) const;
  void backward_weight(const ExecSpace& exec, Tensor<Residual, 2> dx /* (R, C) */, Tensor<TokenId, 1> tokens /* (N) */,
                       Index sequence_length) const;

  /// Of both tables, which backward_weight adds to.
  void zero_gradients(const ExecSpace& exec) const;

  int token_table() const { return token_table_; }  ///< handle in the store, for the tied head

 private:
  const ParameterStore<T>* parameters_;
  const TensorParallel<T>* tensor_;
  ModelConfig config_;
  int token_table_;
  int position_table_;
};

/// Of logits of a row, and rows of the token table, on what this program runs on.
inline constexpr Index logit_multiple = exec_is_host ? logit_multiple_on_host : logit_multiple_on_gpu;

/// Declares the token table, (V, C), on a stage: where the embedding is, and where the head is without it. Both copies
/// start alike, and their gradients are summed.
template <class T>
int declare_token_table(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const ModelConfig& config,
                        Placement placement);

}  // namespace espalier
