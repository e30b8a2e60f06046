// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/attention.hpp"
#include "models/gpt_config.hpp"
#include "models/layernorm.hpp"
#include "models/mlp.hpp"

namespace espalier {

/// The pre-norm block of GPT-2: h = x + attention(norm1(x)); y = h + mlp(norm2(h)). Keeps nothing between calls: what
/// backward needs lies in Saved, what the weight gradients need beside it in Gradients, so that micro-batches may be in
/// flight in any order and the weight part may come later.
template <class T>
class TransformerBlock {
 public:
  struct Saved {
    typename LayerNorm<T>::Saved norm1;
    typename Attention<T>::Saved attention;
    Tensor<T, 2> h;  ///< (N, C), between the two halves
    typename LayerNorm<T>::Saved norm2;
    typename Mlp<T>::Saved mlp;
    Tensor<T, 2> y;  ///< (N, C), the input of the next block

    static Saved take(Arena& arena, const GptConfig& config, const AttentionShape& shape);
  };
  struct Gradients {
    Tensor<T, 2> dy;      ///< (N, C), as given to backward_input
    Tensor<T, 2> dnorm2;  ///< (N, C), of the output of norm2
    Tensor<T, 2> dh;      ///< (N, C)
    Tensor<T, 2> dnorm1;  ///< (N, C)
    typename Mlp<T>::Gradients mlp;
    typename Attention<T>::Gradients attention;

    static Gradients take(Arena& arena, const GptConfig& config, const AttentionShape& shape);
  };

  TransformerBlock(ParameterStore<T>& parameters, const std::string& name, const GptConfig& config,
                   Placement placement);

  /// saved.y = block(x); x must live until backward is done.
  void forward(const ExecSpace& exec, Tensor<T, 2> x /* (N, C) */, const AttentionShape& shape, Saved& saved) const;
  /// dx may be dy only if backward_weight is not called later.
  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (N, C), = */, Tensor<T, 2> dy /* (N, C) */,
                      const AttentionShape& shape, const Saved& saved, Gradients& gradients) const;
  void backward_weight(const ExecSpace& exec, const Saved& saved, const Gradients& gradients) const;

 private:
  LayerNorm<T> norm1_;
  Attention<T> attention_;
  LayerNorm<T> norm2_;
  Mlp<T> mlp_;
};

}  // namespace espalier
