// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/arena.hpp"
#include "models/linear.hpp"
#include "models/recompute.hpp"

namespace espalier {

/// Layer normalisation with weight and bias (core/ops/layernorm), of the rows that this rank has of the residual
/// stream, of type Residual: R of them, C channels. Under sequence parallelism its gradients are summed over the tensor
/// axis.
template <class T, class Residual = T>
class LayerNorm {
 public:
  struct Saved {
    Tensor<Residual, 2> x;     ///< (R, C), the input, owned by whoever made it
    Tensor<T, 2> y;            ///< (R, C), the output, which the next product needs again
    Tensor<State<T>, 1> mean;  ///< (R)
    Tensor<State<T>, 1> rstd;  ///< (R)

    static Saved take(Arena& arena, Index rows, Index channels, SavedParts parts = SavedParts::all());
    void borrow_from(const Saved& other);  ///< what it has no memory for
  };
  /// What backward_input leaves for backward_weight, where it leaves anything.
  struct Gradients {
    Tensor<State<T>, 2> partial;  ///< (P, 2C), see layernorm_partial_rows

    static Gradients take(Arena& arena, Index rows, Index channels);
  };

  LayerNorm(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name, Index channels,
            Placement placement);

  /// saved.y = norm(x)
  void forward(const ExecSpace& exec, Tensor<Residual, 2> x, Saved& saved) const;
  /// dx = dstream + the gradient of the input; dstream may be dx
  void backward_input(const ExecSpace& exec, Tensor<Residual, 2> dx, Tensor<Residual, 2> dstream, Tensor<T, 2> dy,
                      const Saved& saved, const Gradients& gradients) const;
  void backward_weight(const ExecSpace& exec, Tensor<T, 2> dy, const Saved& saved, const Gradients& gradients,
                       State<T> beta) const;

 private:
  const ParameterStore<T>* parameters_;
  Index channels_;
  int weight_;
  int bias_;
};

}  // namespace espalier
