// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/matmul.hpp"
#include "models/gpt_config.hpp"
#include "models/layernorm.hpp"

namespace espalier {

/// Final norm, tied language-model head, softmax and cross-entropy over a vocabulary that is cut over the tensor axis:
/// Vl entries on this rank. The gradient of the logits takes their place in the forward pass, so the (N, Vl) array
/// exists once.
template <class T>
class Head {
 public:
  struct Saved {
    typename LayerNorm<T>::Saved norm;
    Tensor<T, 2> logits;             ///< (N, Vp), Vl and padding: logits, after the loss their gradient
    Tensor<State<T>, 1> losses;      ///< (N)
    Tensor<State<T>, 1> largest;     ///< (N), of the logits of all ranks; only where the vocabulary is cut
    Tensor<State<T>, 1> statistics;  ///< (2N), see core/ops/cross_entropy; only where the vocabulary is cut
  };
  struct Gradients {
    Tensor<T, 2> dnorm;  ///< (R, C)
  };

  /// `token_table` is the handle of the embedding's table.
  Head(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const GptConfig& config, Placement placement,
       int token_table);

  Saved take_saved(Arena& arena, Index tokens /* N */) const;
  Gradients take_gradients(Arena& arena, Index tokens /* N */) const;

  /// saved.logits = norm(x) W^T
  void forward(const ExecSpace& exec, Tensor<T, 2> x /* (R, C) */, Saved& saved) const;

  /// saved.losses, the same on all ranks of the tensor axis.
  void loss(const ExecSpace& exec, Tensor<TokenId, 1> targets /* (N) */, Saved& saved) const;

  /// The same; and saved.logits become scale * d(sum of losses) / d(logits).
  void loss_and_gradient(const ExecSpace& exec, Tensor<TokenId, 1> targets /* (N) */, State<T> scale,
                         Saved& saved) const;

  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (R, C), = */, const Saved& saved,
                      Gradients& gradients) const;
  void backward_weight(const ExecSpace& exec, const Saved& saved, const Gradients& gradients) const;

 private:
  Matrix<T> logits_in_use(const Saved& saved) const;
  void split_loss(const ExecSpace& exec, Tensor<TokenId, 1> targets, Saved& saved) const;
  IndexRange vocabulary() const { return tensor_->shard(0).range(config_.vocab_size); }

  const ParameterStore<T>* parameters_;
  const TensorParallel<T>* tensor_;
  GptConfig config_;
  LayerNorm<T> norm_;
  int token_table_;
};

}  // namespace espalier
