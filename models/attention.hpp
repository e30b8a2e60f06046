// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention.hpp"
#include "models/linear.hpp"
#include "models/take_arrays.hpp"

namespace espalier {

/// Causal multi-head self-attention: the projection to Q, K and V, attention by heads, the projection back. Each rank
/// of the tensor axis has NH/tp of the heads. `shape` is that of this rank.
template <class P>
class Attention {
  using T = Compute<P>;
  using Stream = Tensor<Residual<P>, 2>;

 public:
  struct Saved {
    Tensor<T, 2> qkv;                 ///< (N, C/tp + 2 KV): Q, K and V of our heads
    Tensor<T, 2> heads;               ///< (N, C/tp), the output of our heads side by side
    Tensor<State<T>, 1> log_sum_exp;  ///< (B*NH/tp*T)

    template <class Visit>
    void each(Visit& visit, const BlockShape& shape) {
      const Index heads_channels = shape.attention.num_heads * shape.attention.head_size;
      visit(qkv, SavedArray{"attention.qkv", MadeBy::product, ReadBy::backward_input}, shape.tokens(),
            heads_channels + 2 * shape.kv_channels);
      visit(log_sum_exp, SavedArray{"attention.log_sum_exp", MadeBy::attention, ReadBy::backward_input},
            shape.tokens() * shape.attention.num_heads);
      visit(heads, SavedArray{"attention.heads", MadeBy::attention, ReadBy::both_parts}, shape.tokens(),
            heads_channels);
    }
  };
  /// Gradients that backward_input leaves for backward_weight.
  struct Gradients {
    Tensor<T, 2> dqkv;    ///< (N, C/tp + 2 KV)
    Tensor<T, 2> dheads;  ///< (N, C/tp)

    static Gradients take(Arena& arena, const BlockShape& shape) {
      const Index channels = shape.attention.num_heads * shape.attention.head_size;
      return {arena.take<T>(shape.tokens(), channels + 2 * shape.kv_channels), arena.take<T>(shape.tokens(), channels)};
    }
  };

  Attention(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name, Index hidden_size,
            Placement placement, double init_std, double projection_std)
      : qkv_(parameters, tensor, qkv_outputs(name, hidden_size), hidden_size, placement, init_std),
        projection_(parameters, tensor, name + ".proj", hidden_size, hidden_size, placement, projection_std) {}

  static void work(LayerWork& work, const BlockShape& shape) {
    const Index heads = shape.attention.num_heads * shape.attention.head_size;  // C/tp
    ColumnParallelLinear<P>::work(work, shape, heads + 2 * shape.kv_channels, shape.channels);
    work.forward.attention.push_back({shape.attention, false});
    work.backward_input.attention.push_back({shape.attention, true});
    RowParallelLinear<P>::work(work, shape, shape.channels, heads);
  }

  /// y = residual + attention(x)
  void forward(const ExecSpace& exec, Stream y /* (R, C) */, Tensor<T, 2> x /* (R, C) */, Stream residual /* (R, C) */,
               const AttentionShape& shape, Saved& saved) const {
    qkv_.forward(exec, saved.qkv, x);
    count_work(AttentionWork{shape, false});
    attention_forward<T>(exec, saved.heads, saved.log_sum_exp, saved.qkv, shape);
    projection_.forward_add(exec, y, saved.heads, residual);
  }

  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (R, C), = */, Stream dy /* (R, C) */,
                      const AttentionShape& shape, const Saved& saved, Gradients& gradients) const {
    projection_.backward_input(exec, gradients.dheads, dy);
    count_work(AttentionWork{shape, true});
    attention_backward<T>(exec, gradients.dqkv, gradients.dheads, saved.heads, saved.log_sum_exp, saved.qkv, shape);
    qkv_.backward_input(exec, dx, gradients.dqkv);
  }

  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x /* (R, C) */, Stream dy /* (R, C) */, const Saved& saved,
                       const Gradients& gradients, State<T> beta) const {
    projection_.backward_weight(exec, saved.heads, dy, beta);
    qkv_.backward_weight(exec, x, gradients.dqkv, beta);
  }

 private:
  // Their initial values are those of one tensor (3, C, C), as they were one parameter in version 1 of checkpoints.
  static std::vector<LinearOutputs> qkv_outputs(const std::string& name, Index hidden_size) {
    const std::string stream = name + ".qkv.weight";
    const Index size = hidden_size * hidden_size;
    return {{name + ".query", hidden_size, stream, 0},
            {name + ".key", hidden_size, stream, size},
            {name + ".value", hidden_size, stream, 2 * size}};
  }

  ColumnParallelLinear<P> qkv_;
  RowParallelLinear<P> projection_;
};

}  // namespace espalier
