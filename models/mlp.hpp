// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/arena.hpp"
#include "models/linear.hpp"
#include "models/recompute.hpp"

namespace espalier {

/// The feed-forward part of a block: up, GELU, down. F = ffn_hidden_size, of which each rank of the tensor axis has
/// F/tp channels. Residual is the type of the residual stream.
template <class T, class Residual = T>
class Mlp {
 public:
  struct Saved {
    Tensor<T, 2> up;         ///< (N, F/tp), before GELU
    Tensor<T, 2> activated;  ///< (N, F/tp)

    static Saved take(Arena& arena, Index rows /* N */, Index local_ffn /* F/tp */, SavedParts parts);
    void borrow_from(const Saved& other);  ///< what it has no memory for
  };
  struct Gradients {
    Tensor<T, 2> dup;  ///< (N, F/tp)

    static Gradients take(Arena& arena, Index rows /* N */, Index local_ffn /* F/tp */);
  };

  Mlp(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name, Index hidden_size,
      Index ffn_hidden_size, Placement placement, double init_std, double projection_std);

  /// y = residual + mlp(x)
  void forward(const ExecSpace& exec, Tensor<Residual, 2> y /* (R, C) */, Tensor<T, 2> x /* (R, C) */,
               Tensor<Residual, 2> residual /* (R, C) */, Saved& saved) const;
  /// saved alone, and of it only saved.activated: forward again, as far as backward reads it.
  void recompute(const ExecSpace& exec, Tensor<T, 2> x /* (R, C) */, Saved& saved) const;
  void recompute_activated(const ExecSpace& exec, Saved& saved) const;
  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (R, C), = */, Tensor<Residual, 2> dy /* (R, C) */,
                      const Saved& saved, Gradients& gradients) const;
  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x /* (R, C) */, Tensor<Residual, 2> dy /* (R, C) */,
                       const Saved& saved, const Gradients& gradients, State<T> beta) const;

 private:
  ColumnParallelLinear<T> up_;
  RowParallelLinear<T, Residual> down_;
};

}  // namespace espalier
