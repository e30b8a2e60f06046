// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "core/ops/rmsnorm.hpp"
#include "models/linear.hpp"
#include "models/take_arrays.hpp"

namespace espalier {

/// RMSNorm of each head of Q and K, before positions (Dehghani et al., ViT-22B, 2023; Qwen3). All heads of Q share
/// a weight (HS), and all of K another: each tensor rank adds the gradient of its own heads.
template <class P>
class QkNorm {
  using T = Compute<P>;

 public:
  struct Saved {
    Tensor<T, 2> qk;             ///< (N, Q + KV), before the norm
    Tensor<State<T>, 1> q_rstd;  ///< (N*NH/tp)
    Tensor<State<T>, 1> k_rstd;  ///< (N*NKV/tp)

    template <class Visit>
    void each(Visit& visit, const BlockShape& shape) {
      visit(qk, SavedArray{"attention.qk", MadeBy::matmul, ReadBy::both_parts}, shape.tokens(), shape.qk_channels());
      visit(q_rstd, SavedArray{"attention.q_rstd", MadeBy::elementwise, ReadBy::both_parts},
            shape.tokens() * shape.attention.num_heads);
      visit(k_rstd, SavedArray{"attention.k_rstd", MadeBy::elementwise, ReadBy::both_parts},
            shape.tokens() * shape.attention.num_kv_heads);
    }
  };

  QkNorm(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name,
         const ModelConfig& config, Placement placement)
      : parameters_(&parameters), head_size_(config.head_size()), eps_(config.norm_eps) {
    for (const auto& [part, id] : {std::pair("query", &query_), std::pair("key", &key_)})
      *id = parameters.declare({.name = name + "." + part + "_norm.weight",
                                .shape = {head_size_},
                                .chunk = placement.chunk,
                                .block = placement.block,
                                .partial = tensor.size() > 1 ? AxisSet{Axis::tp} : AxisSet{},
                                .weight_decay = false,
                                .init_mean = 1});
  }

  static void work(LayerWork& work, const BlockShape& shape) {
    const double bytes = array_bytes<T>(shape.tokens(), shape.qk_channels());
    work.forward.elementwise_bytes += 4 * bytes;
    work.backward_input.elementwise_bytes += 5 * bytes;
    work.backward_weight.elementwise_bytes += 2 * bytes;
  }

  /// Q and K of qkv, in place.
  void forward(const ExecSpace& exec, const Tensor<T, 2>& qkv /* (N, Q + 2 KV) */, const AttentionShape& shape,
               const Saved& saved) const {
    const auto [q, k] = parts(qkv, shape);
    const auto [old_q, old_k] = parts(saved.qk, shape);
    Kokkos::deep_copy(exec, old_q, q);
    Kokkos::deep_copy(exec, old_k, k);
    rmsnorm_forward<T>(exec, q, saved.q_rstd, old_q, parameters_->weight(query_, head_size_), eps_);
    rmsnorm_forward<T>(exec, k, saved.k_rstd, old_k, parameters_->weight(key_, head_size_), eps_);
  }

  /// Of dqkv the gradients of Q and K become those before the norm; dqk those after it.
  void backward_input(const ExecSpace& exec, const Tensor<T, 2>& dqkv /* (N, Q + 2 KV) */,
                      const Tensor<T, 2>& dqk /* (N, Q + KV), = */, const AttentionShape& shape,
                      const Saved& saved) const {
    const auto [dq, dk] = parts(dqkv, shape);
    const auto [q_after, k_after] = parts(dqk, shape);
    const auto [q, k] = parts(saved.qk, shape);
    Kokkos::deep_copy(exec, q_after, dq);
    Kokkos::deep_copy(exec, k_after, dk);
    rmsnorm_backward_input<T>(exec, dq, {}, q_after, q, saved.q_rstd, parameters_->weight(query_, head_size_));
    rmsnorm_backward_input<T>(exec, dk, {}, k_after, k, saved.k_rstd, parameters_->weight(key_, head_size_));
  }

  void backward_weight(const ExecSpace& exec, const Tensor<T, 2>& dqk /* (N, Q + KV) */, const AttentionShape& shape,
                       const Saved& saved, State<T> beta) const {
    const auto [dq, dk] = parts(dqk, shape);
    const auto [q, k] = parts(saved.qk, shape);
    rmsnorm_backward_weight<T>(exec, parameters_->gradient(query_, head_size_), dq, q, saved.q_rstd, beta);
    rmsnorm_backward_weight<T>(exec, parameters_->gradient(key_, head_size_), dk, k, saved.k_rstd, beta);
  }

 private:
  static std::pair<Tensor<T, 2>, Tensor<T, 2>> parts(const Tensor<T, 2>& rows, const AttentionShape& shape) {
    const Index q = shape.num_heads * shape.head_size, kv = shape.num_kv_heads * shape.head_size;
    return {Kokkos::subview(rows, Kokkos::ALL, std::pair<Index, Index>(0, q)),
            Kokkos::subview(rows, Kokkos::ALL, std::pair<Index, Index>(q, q + kv))};
  }

  const ParameterStore<T>* parameters_;
  Index head_size_;
  double eps_;
  int query_ = 0;
  int key_ = 0;
};

}  // namespace espalier
