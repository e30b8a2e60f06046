// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <utility>

#include "models/linear.hpp"

namespace espalier {

/// The projection to Q, K and V: [Q | K | V] = x W^T, in one matmul. With fewer heads of K and V than tensor ranks,
/// consecutive ranks hold the same head and sum its gradients; then Q is a matmul of its own.
template <class P>
class QkvProjection {
  using T = Compute<P>;

 public:
  QkvProjection(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name,
                const ModelConfig& config, Placement placement, double init_std)
      : tensor_(&tensor),
        first_(parameters, tensor, outputs(name, config, tensor, true), config.hidden_size, config.has_qkv_bias(),
               placement, init_std) {
    if (const int copies = config.kv_copies(tensor.size()); copies > 1)
      key_value_.emplace(parameters, tensor, outputs(name, config, tensor, false), config.hidden_size,
                         config.has_qkv_bias(), placement, init_std, copies);
  }

  static void work(LayerWork& work, const BlockShape& shape) {
    if (!shape.copies_kv)
      return ColumnParallelLinear<P>::work(work, shape, shape.qkv_channels(), shape.channels, shape.qkv_bias);
    LayerWork key_value;
    ColumnParallelLinear<P>::work(work, shape, shape.q_channels(), shape.channels, shape.qkv_bias);
    ColumnParallelLinear<P>::work(key_value, shape, 2 * shape.kv_channels, shape.channels, shape.qkv_bias);
    for (const auto part : {&LayerWork::forward, &LayerWork::backward_input, &LayerWork::backward_weight}) {
      (key_value.*part).collectives.clear();  // x and dx are gathered and reduced once
      work.*part += key_value.*part;
    }
  }

  void forward(const ExecSpace& exec, Tensor<T, 2> qkv /* (N, Q + 2 KV) */, Tensor<T, 2> x /* (R, C) */,
               const AttentionShape& shape) const {
    if (!key_value_)
      return first_.forward(exec, qkv, x);
    const auto [q, kv] = parts(qkv, shape);
    const Tensor<T, 2> gathered = tensor_->gather(exec, x);  // (N, C)
    first_.forward_gathered(exec, q, gathered);
    key_value_->forward_gathered(exec, kv, gathered);
  }

  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (R, C), = */, Tensor<T, 2> dqkv /* (N, Q + 2 KV) */,
                      const AttentionShape& shape) const {
    if (!key_value_)
      return first_.backward_input(exec, dx, dqkv);
    const auto [dq, dkv] = parts(dqkv, shape);
    const Tensor<T, 2> summand = tensor_->partial(dx);  // (N, C)
    first_.add_input_gradient(exec, summand, dq, 0);
    key_value_->add_input_gradient(exec, summand, dkv, 1);
    tensor_->reduce(exec, dx);
  }

  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x /* (R, C) */, Tensor<T, 2> dqkv /* (N, Q + 2 KV) */,
                       const AttentionShape& shape, State<T> beta) const {
    if (!key_value_)
      return first_.backward_weight(exec, x, dqkv, beta);
    const auto [dq, dkv] = parts(dqkv, shape);
    const Tensor<T, 2> gathered = tensor_->gather(exec, x);  // (N, C)
    first_.backward_weight_gathered(exec, gathered, dq, beta);
    key_value_->backward_weight_gathered(exec, gathered, dkv, beta);
  }

 private:
  // Q, K and V; or Q alone and K and V alone. Their initial values are those of one tensor (Q + 2 KV, C), as they were
  // one parameter in version 1 of checkpoints.
  static std::vector<LinearOutputs> outputs(const std::string& name, const ModelConfig& config,
                                            const TensorParallel<T>& tensor, bool first) {
    const std::string stream = name + ".qkv.weight";
    const Index q = config.q_size(), kv = config.kv_size(), c = config.hidden_size;
    const LinearOutputs query{name + ".query", q, stream, 0}, key{name + ".key", kv, stream, q * c},
        value{name + ".value", kv, stream, (q + kv) * c};
    if (config.kv_copies(tensor.size()) == 1)
      return {query, key, value};
    return first ? std::vector{query} : std::vector{key, value};
  }

  // Columns of Q, and those of K and V.
  static std::pair<Tensor<T, 2>, Tensor<T, 2>> parts(const Tensor<T, 2>& rows, const AttentionShape& shape) {
    const Index q = shape.num_heads * shape.head_size;
    return {Kokkos::subview(rows, Kokkos::ALL, std::pair<Index, Index>(0, q)),
            Kokkos::subview(rows, Kokkos::ALL, std::pair<Index, Index>(q, rows.extent(1)))};
  }

  const TensorParallel<T>* tensor_;
  ColumnParallelLinear<P> first_;  // of all three, or of Q
  std::optional<ColumnParallelLinear<P>> key_value_;
};

}  // namespace espalier
