// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/arena.hpp"
#include "core/ops/attention.hpp"
#include "models/linear.hpp"
#include "models/recompute.hpp"

namespace espalier {

/// Causal multi-head self-attention: the projection to Q, K and V, attention by heads, the projection back. Each rank
/// of the tensor axis has NH/tp of the heads. `shape` is that of this rank. Residual is the type of the residual
/// stream.
template <class T, class Residual = T>
class Attention {
 public:
  struct Saved {
    Tensor<T, 2> qkv;                 ///< (N, 3C/tp)
    Tensor<T, 2> heads;               ///< (N, C/tp), the output of our heads side by side
    Tensor<State<T>, 1> log_sum_exp;  ///< (B*NH/tp*T)

    static Saved take(Arena& arena, const AttentionShape& shape, SavedParts parts);
    void borrow_from(const Saved& other);  ///< what it has no memory for
  };
  /// Gradients that backward_input leaves for backward_weight.
  struct Gradients {
    Tensor<T, 2> dqkv;    ///< (N, 3C/tp)
    Tensor<T, 2> dheads;  ///< (N, C/tp)

    static Gradients take(Arena& arena, const AttentionShape& shape);
  };

  Attention(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name, Index hidden_size,
            Placement placement, double init_std, double projection_std);

  /// y = residual + attention(x)
  void forward(const ExecSpace& exec, Tensor<Residual, 2> y /* (R, C) */, Tensor<T, 2> x /* (R, C) */,
               Tensor<Residual, 2> residual /* (R, C) */, const AttentionShape& shape, Saved& saved) const;
  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (R, C), = */, Tensor<Residual, 2> dy /* (R, C) */,
                      const AttentionShape& shape, const Saved& saved, Gradients& gradients) const;
  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x /* (R, C) */, Tensor<Residual, 2> dy /* (R, C) */,
                       const Saved& saved, const Gradients& gradients, State<T> beta) const;

 private:
  ColumnParallelLinear<T> qkv_;
  RowParallelLinear<T, Residual> projection_;
};

}  // namespace espalier
