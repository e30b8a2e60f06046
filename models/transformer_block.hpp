// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/attention.hpp"
#include "models/layernorm.hpp"
#include "models/mlp.hpp"
#include "models/model_config.hpp"

namespace espalier {

/// Sizes of one micro-batch on this rank.
struct BlockShape {
  AttentionShape attention;  ///< B, T, NH/tp, HS
  Index rows;                ///< R, of the residual stream: N = B*T, or N/tp under sequence parallelism
  Index channels;            ///< C
  Index ffn;                 ///< F/tp

  Index tokens() const { return attention.batch * attention.sequence_length; }  ///< N
};

template <class T>
BlockShape make_block_shape(const ModelConfig& config, const TensorParallel<T>& tensor, Index batch,
                            Index sequence_length) {
  return {{batch, sequence_length, config.num_heads / tensor.size(), config.head_size()},
          tensor.local_rows(batch * sequence_length),
          config.hidden_size,
          config.ffn_hidden_size / tensor.size()};
}

/// The pre-norm block of GPT-2: h = x + attention(norm1(x)); y = h + mlp(norm2(h)). Keeps nothing between calls: what
/// backward needs lies in Saved, what the weight gradients need beside it in Gradients, so that micro-batches may be in
/// flight in any order and the weight part may come later. x, h and y, the residual stream, are of type Residual.
template <class T, class Residual = T>
class TransformerBlock {
 public:
  struct Saved {
    typename LayerNorm<T, Residual>::Saved norm1;
    typename Attention<T, Residual>::Saved attention;
    Tensor<Residual, 2> h;  ///< (R, C), between the two halves
    typename LayerNorm<T, Residual>::Saved norm2;
    typename Mlp<T, Residual>::Saved mlp;
    Tensor<Residual, 2> y;  ///< (R, C), the input of the next block

    static Saved take(Arena& arena, const BlockShape& shape, SavedParts parts);  ///< but y
    void borrow_from(const Saved& other);                                        ///< what it has no memory for
  };
  struct Gradients {
    Tensor<Residual, 2> dy;  ///< (R, C), as given to backward_input
    Tensor<T, 2> dnorm2;     ///< (R, C), of the output of norm2
    typename LayerNorm<T, Residual>::Gradients norm2;
    Tensor<Residual, 2> dh;  ///< (R, C)
    Tensor<T, 2> dnorm1;     ///< (R, C)
    typename LayerNorm<T, Residual>::Gradients norm1;
    typename Mlp<T, Residual>::Gradients mlp;
    typename Attention<T, Residual>::Gradients attention;

    static Gradients take(Arena& arena, const BlockShape& shape);
  };

  TransformerBlock(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name,
                   const ModelConfig& config, Placement placement);

  /// saved.y = block(x); x must live until backward is done.
  void forward(const ExecSpace& exec, Tensor<Residual, 2> x /* (R, C) */, const BlockShape& shape, Saved& saved) const;
  /// Forward again from x, all of `saved` but y.
  void recompute(const ExecSpace& exec, Tensor<Residual, 2> x /* (R, C) */, const BlockShape& shape,
                 Saved& saved) const;
  /// Forward again what backward_weight alone reads, from the rest of `saved`.
  void recompute_for_weight(const ExecSpace& exec, Saved& saved) const;

  /// dx may be dy only if backward_weight is not called later.
  void backward_input(const ExecSpace& exec, Tensor<Residual, 2> dx /* (R, C), = */,
                      Tensor<Residual, 2> dy /* (R, C) */, const BlockShape& shape, const Saved& saved,
                      Gradients& gradients) const;
  /// Overwrites the gradients of the weights (beta 0) or adds to them (1).
  void backward_weight(const ExecSpace& exec, const Saved& saved, const Gradients& gradients, State<T> beta) const;

 private:
  /// Up to the input of the mlp.
  void first_half(const ExecSpace& exec, Tensor<Residual, 2> x, const BlockShape& shape, Saved& saved) const;

  LayerNorm<T, Residual> norm1_;
  Attention<T, Residual> attention_;
  LayerNorm<T, Residual> norm2_;
  Mlp<T, Residual> mlp_;
};

}  // namespace espalier
