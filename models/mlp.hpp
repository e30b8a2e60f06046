// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/arena.hpp"
#include "models/linear.hpp"

namespace espalier {

/// The feed-forward part of a block: up, GELU, down. F = ffn_hidden_size.
template <class T>
class Mlp {
 public:
  struct Saved {
    Tensor<T, 2> up;         ///< (N, F), before GELU
    Tensor<T, 2> activated;  ///< (N, F)

    static Saved take(Arena& arena, Index rows, Index ffn_hidden_size);
  };
  struct Gradients {
    Tensor<T, 2> dup;  ///< (N, F)

    static Gradients take(Arena& arena, Index rows, Index ffn_hidden_size);
  };

  Mlp(ParameterStore<T>& parameters, const std::string& name, Index hidden_size, Index ffn_hidden_size,
      Placement placement, double init_std, double projection_std);

  /// y = residual + mlp(x)
  void forward(const ExecSpace& exec, Tensor<T, 2> y /* (N, C) */, Tensor<T, 2> x /* (N, C) */,
               Tensor<T, 2> residual /* (N, C) */, Saved& saved) const;
  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (N, C), = */, Tensor<T, 2> dy /* (N, C) */,
                      const Saved& saved, Gradients& gradients) const;
  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x, Tensor<T, 2> dy, const Saved& saved,
                       const Gradients& gradients) const;

 private:
  Linear<T> up_;
  Linear<T> down_;
};

}  // namespace espalier
