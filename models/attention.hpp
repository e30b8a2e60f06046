// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/ops/attention.hpp"
#include "core/ops/attention_cached.hpp"
#include "models/linear.hpp"
#include "models/qk_norm.hpp"
#include "models/qkv_projection.hpp"
#include "models/rotary_table.hpp"
#include "models/take_arrays.hpp"

namespace espalier {

/// Keys and values of a layer, as attention reads them, and where the rows that come stand in them.
template <class T>
struct KvCache {
  Tensor<T, 3> cache;  ///< (S, P, 2 KV), of S sequences; empty: none are kept
  CachedRows rows;
};

/// Causal multi-head self-attention: the projection to Q, K and V, their norms and positions, attention by heads, the
/// projection back. Groups of heads may share keys and values. Each rank of the tensor axis has NH/tp of the heads:
/// Q = NH/tp*HS channels, KV = NKV/tp*HS. `shape` is that of this rank.
template <class P>
class Attention {
  using T = Compute<P>;
  using Stream = Tensor<Residual<P>, 2>;

 public:
  struct Saved {
    Tensor<T, 2> qkv;                 ///< (N, Q + 2 KV): Q, K and V of our heads, as attention reads them
    Tensor<T, 2> heads;               ///< (N, Q), the output of our heads side by side
    Tensor<State<T>, 1> log_sum_exp;  ///< (B*NH/tp*T)
    typename QkNorm<P>::Saved qk_norm;

    template <class Visit>
    void each(Visit& visit, const BlockShape& shape) {
      visit(qkv, SavedArray{"attention.qkv", MadeBy::matmul, ReadBy::backward_input}, shape.tokens(),
            shape.qkv_channels());
      if (shape.qk_norm)
        qk_norm.each(visit, shape);
      visit(log_sum_exp, SavedArray{"attention.log_sum_exp", MadeBy::attention, ReadBy::backward_input},
            shape.tokens() * shape.attention.num_heads);
      visit(heads, SavedArray{"attention.heads", MadeBy::attention, ReadBy::both_parts}, shape.tokens(),
            shape.q_channels());
    }
  };
  /// Gradients that backward_input leaves for backward_weight.
  struct Gradients {
    Tensor<T, 2> dqkv;    ///< (N, Q + 2 KV)
    Tensor<T, 2> dheads;  ///< (N, Q)
    Tensor<T, 2> dqk;     ///< (N, Q + KV), after the norms of Q and K, where there are any

    static Gradients take(Arena& arena, const BlockShape& shape) {
      Gradients gradients{
          arena.take<T>(shape.tokens(), shape.qkv_channels()), arena.take<T>(shape.tokens(), shape.q_channels()), {}};
      if (shape.qk_norm)
        gradients.dqk = arena.take<T>(shape.tokens(), shape.qk_channels());
      return gradients;
    }
  };

  /// `rotary` must outlive it.
  Attention(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const RotaryTable<T>& rotary,
            const std::string& name, const ModelConfig& config, Placement placement, double init_std,
            double projection_std)
      : rotary_(&rotary),
        qkv_(parameters, tensor, name, config, placement, init_std),
        projection_(parameters, tensor, name + ".proj", config.hidden_size, config.q_size(), config.bias, placement,
                    projection_std) {
    if (config.qk_norm)
      qk_norm_.emplace(parameters, tensor, name, config, placement);
  }

  static void work(LayerWork& work, const BlockShape& shape) {
    QkvProjection<P>::work(work, shape);
    if (shape.qk_norm)
      QkNorm<P>::work(work, shape);
    if (shape.rotary > 0) {
      const Index rotated = shape.qk_channels() / shape.attention.head_size * shape.rotary;
      work.forward.elementwise_bytes += array_bytes<T>(shape.tokens(), rotated, 2);
      work.backward_input.elementwise_bytes += array_bytes<T>(shape.tokens(), rotated, 2);
    }
    work.forward.attention.push_back({shape.attention, false});
    work.backward_input.attention.push_back({shape.attention, true});
    RowParallelLinear<P>::work(work, shape, shape.channels, shape.q_channels(), shape.bias);
  }

  /// y = residual + dropout(attention(x))
  /// @param positions of the tokens, where they are not those of whole sequences; of separate documents see
  /// core/ops/attention.hpp
  /// @param cached keys and values of this layer, which those of x join
  void forward(const ExecSpace& exec, Stream y /* (R, C) */, Tensor<T, 2> x /* (R, C) */, Stream residual /* (R, C) */,
               const AttentionShape& shape, Saved& saved, const AttentionDropout& of_probabilities,
               const Dropout& dropout, Tensor<int, 1> positions /* (N) */, const KvCache<T>& cached = {}) const {
    qkv_.forward(exec, saved.qkv, x, shape);
    if (qk_norm_)
      qk_norm_->forward(exec, saved.qkv, shape, saved.qk_norm);
    rotary_->forward(exec, saved.qkv, shape.num_heads + shape.num_kv_heads, shape.head_size,
                     {shape.sequence_length, positions});
    if (cached.cache.extent(0) > 0) {
      attention_cached<T>(exec, saved.heads, saved.qkv, cached.cache, cached.rows, shape);
    } else {
      count_work(AttentionWork{shape, false});
      attention_forward<T>(exec, saved.heads, saved.log_sum_exp, saved.qkv, shape, of_probabilities, positions);
    }
    projection_.forward_add(exec, y, saved.heads, residual, dropout);
  }

  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (R, C), = */, Stream dy /* (R, C) */,
                      const AttentionShape& shape, const Saved& saved, Gradients& gradients,
                      const AttentionDropout& of_probabilities, Tensor<int, 1> positions /* (N) */) const {
    projection_.backward_input(exec, gradients.dheads, dy);
    count_work(AttentionWork{shape, true});
    attention_backward<T>(exec, gradients.dqkv, gradients.dheads, saved.heads, saved.log_sum_exp, saved.qkv, shape,
                          of_probabilities, positions);
    rotary_->backward(exec, gradients.dqkv, shape.num_heads + shape.num_kv_heads, shape.head_size,
                      {shape.sequence_length, positions});
    if (qk_norm_)
      qk_norm_->backward_input(exec, gradients.dqkv, gradients.dqk, shape, saved.qk_norm);
    qkv_.backward_input(exec, dx, gradients.dqkv, shape);
  }

  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x /* (R, C) */, Stream dy /* (R, C) */,
                       const AttentionShape& shape, const Saved& saved, const Gradients& gradients,
                       State<T> beta) const {
    projection_.backward_weight(exec, saved.heads, dy, beta);
    if (qk_norm_)
      qk_norm_->backward_weight(exec, gradients.dqk, shape, saved.qk_norm, beta);
    qkv_.backward_weight(exec, x, gradients.dqkv, shape, beta);
  }

 private:
  const RotaryTable<T>* rotary_;
  QkvProjection<P> qkv_;
  std::optional<QkNorm<P>> qk_norm_;
  RowParallelLinear<P> projection_;
};

}  // namespace espalier
