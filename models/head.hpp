// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/matmul.hpp"
#include "models/layernorm.hpp"
#include "models/logit_rows.hpp"
#include "models/model_config.hpp"

namespace espalier {

/// Logits of a rank that exist at a time on what this program runs on.
inline constexpr Index most_logits = exec_is_host ? most_logits_on_host : most_logits_on_gpu;

/// Final norm, tied language-model head, softmax and cross-entropy over a vocabulary that is cut over the tensor axis:
/// Vl entries on this rank. The (N, V) logits never exist as a whole: the rows are taken in chunks of K, and in
/// training each chunk is done with, gradients included, before the next one begins (Liger kernels, Hsu et al., 2024,
/// do the same). So the gradient of the token table is added up in the forward pass, in the order of the forwards, and
/// backward has the norm left.
template <class T, class Residual = T>
class Head {
 public:
  struct Saved {
    typename LayerNorm<T, Residual>::Saved norm;  ///< y is the output of the norm, after the loss its gradient
    typename LayerNorm<T, Residual>::Gradients norm_gradients;
  };
  /// Used in forward only: one is enough.
  struct Scratch {
    Tensor<T, 2> logits;             ///< (K, Vp): Vl and, on GPUs, columns of zeros, see logit_multiple
    Tensor<State<T>, 1> losses;      ///< (N)
    Tensor<State<T>, 1> largest;     ///< (K), of the logits of all ranks; only where the vocabulary is cut
    Tensor<State<T>, 1> statistics;  ///< (2K), see core/ops/cross_entropy; only where the vocabulary is cut
  };

  /// `token_table` is the handle of the embedding's table.
  Head(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const ModelConfig& config, Placement placement,
       int token_table);

  Saved take_saved(Arena& arena, Index tokens /* N */) const;
  Scratch take_scratch(Arena& arena, Index tokens /* N */) const;

  /// saved.norm of x
  void forward(const ExecSpace& exec, Tensor<Residual, 2> x /* (R, C) */, Saved& saved) const;

  /// scratch.losses, the same on all ranks of the tensor axis.
  void loss(const ExecSpace& exec, Tensor<TokenId, 1> targets /* (N) */, const Saved& saved, Scratch& scratch) const;

  /// The same; saved.norm.y becomes its own gradient, that of scale * (sum of losses), and the token table's is added.
  void loss_and_gradient(const ExecSpace& exec, Tensor<TokenId, 1> targets /* (N) */, State<T> scale, Saved& saved,
                         Scratch& scratch) const;

  /// After forward, the logits of rows [first, first + count); count is K at most. Not for a vocabulary that is cut.
  Matrix<T> logits(const ExecSpace& exec, Index first, Index count, const Saved& saved, Scratch& scratch) const;

  void backward_input(const ExecSpace& exec, Tensor<Residual, 2> dx /* (R, C), = */, const Saved& saved) const;
  /// Of the norm, as TransformerBlock's; the table's is added to by loss_and_gradient.
  void backward_weight(const ExecSpace& exec, const Saved& saved, State<T> beta) const;
  void zero_table_gradient(const ExecSpace& exec) const;

 private:
  Tensor<T, 2> logits_of(const ExecSpace& exec, Tensor<T, 2> normed, Scratch& scratch) const;
  void split_loss(const ExecSpace& exec, Tensor<TokenId, 1> targets, Tensor<State<T>, 1> losses, Tensor<T, 2> logits,
                  Scratch& scratch) const;
  template <class F>
  void for_chunks(Tensor<TokenId, 1> targets, Tensor<T, 2> normed, const Scratch& scratch, const F& work) const;
  Tensor<T, 2> without_padding(const Tensor<T, 2>& logits) const;
  IndexRange vocabulary() const { return tensor_->shard(0).range(config_.vocab_size); }

  const ParameterStore<T>* parameters_;
  const TensorParallel<T>* tensor_;
  ModelConfig config_;
  LayerNorm<T, Residual> norm_;
  int token_table_;
};

}  // namespace espalier
