// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/parameter.hpp"

namespace espalier {

/// Where a layer stands: the model chunk of this rank and the position inside it, in forward order.
struct Placement {
  int chunk = 0;
  int block = 0;
};

/// y = x W^T + bias, with W (out, in) and N rows. Keeps nothing between calls.
template <class T>
class Linear {
 public:
  /// `weight_shape` is the logical shape, whose last dimension is the input: (out, in), or (3, C, C) for Q, K and V.
  Linear(ParameterStore<T>& parameters, const std::string& name, std::vector<Index> weight_shape, Placement placement,
         double init_std);

  void forward(const ExecSpace& exec, Tensor<T, 2> y /* (N, out) */, Tensor<T, 2> x /* (N, in) */) const;

  /// y = residual + x W^T + bias; y may be residual.
  void forward_add(const ExecSpace& exec, Tensor<T, 2> y /* (N, out) */, Tensor<T, 2> x /* (N, in) */,
                   Tensor<T, 2> residual /* (N, out) */) const;

  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (N, in), = */, Tensor<T, 2> dy /* (N, out) */) const;

  /// dW += dy^T x, dbias += column sums of dy.
  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x /* (N, in) */, Tensor<T, 2> dy /* (N, out) */) const;

 private:
  const ParameterStore<T>* parameters_;
  Index out_;
  Index in_;
  int weight_;
  int bias_;
};

}  // namespace espalier
