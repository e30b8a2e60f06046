// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/matmul.hpp"
#include "models/gpt_config.hpp"
#include "models/layernorm.hpp"

namespace espalier {

/// Final norm, tied language-model head, softmax and cross-entropy. The gradient of the logits takes their place in the
/// forward pass, so the (N, V) array exists once.
template <class T>
class Head {
 public:
  struct Saved {
    typename LayerNorm<T>::Saved norm;
    Tensor<T, 2> logits;         ///< (N, Vp): logits, after the loss their gradient
    Tensor<State<T>, 1> losses;  ///< (N)

    static Saved take(Arena& arena, const GptConfig& config, Index rows);
  };
  struct Gradients {
    Tensor<T, 2> dnorm;  ///< (N, C)

    static Gradients take(Arena& arena, const GptConfig& config, Index rows);
  };

  /// `token_table` is the handle of the embedding's table.
  Head(ParameterStore<T>& parameters, const GptConfig& config, Placement placement, int token_table);

  /// saved.logits = norm(x) W^T
  void forward(const ExecSpace& exec, Tensor<T, 2> x /* (N, C) */, Saved& saved) const;

  /// saved.losses; and with a scale other than 0 saved.logits become scale * d(sum of losses) / d(logits).
  void loss(const ExecSpace& exec, Tensor<TokenId, 1> targets /* (N) */, State<T> scale, Saved& saved) const;

  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (N, C), = */, const Saved& saved,
                      Gradients& gradients) const;
  void backward_weight(const ExecSpace& exec, const Saved& saved, const Gradients& gradients) const;

 private:
  Matrix<T> logits_in_use(const Saved& saved) const;

  const ParameterStore<T>* parameters_;
  GptConfig config_;
  LayerNorm<T> norm_;
  int token_table_;
};

}  // namespace espalier
