// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/parameter.hpp"
#include "parallel/tensor_parallel.hpp"

// y = x W^T + bias with W (out, in), whose outputs or inputs are cut over the tensor axis of tp ranks. Layers keep
// nothing between calls. N = B*T rows; R = N, or N/tp where sequence parallelism cuts the residual stream.

namespace espalier {

/// Where a layer stands: the model chunk of this rank and the position inside it, in forward order.
struct Placement {
  int chunk = 0;
  int block = 0;
};

/// Each rank computes some of the outputs from all of the input: the rows of W are cut, and the bias.
template <class T>
class ColumnParallelLinear {
 public:
  /// `weight_shape` is the logical shape, whose last dimension is the input: (out, in), or (3, C, C) for Q, K and V,
  /// each of which is cut.
  ColumnParallelLinear(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name,
                       std::vector<Index> weight_shape, Placement placement, double init_std);

  void forward(const ExecSpace& exec, Tensor<T, 2> y /* (N, out/tp) */, Tensor<T, 2> x /* (R, in) */) const;
  /// up is what forward() gives, y = gelu(up).
  void forward_gelu(const ExecSpace& exec, Tensor<T, 2> y /* (N, out/tp) */, Tensor<T, 2> up /* (N, out/tp) */,
                    Tensor<T, 2> x /* (R, in) */) const;
  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (R, in), = */, Tensor<T, 2> dy /* (N, out/tp) */) const;
  /// dW = dy^T x + beta dW, dbias = column sums of dy + beta dbias; beta 0 or 1.
  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x /* (R, in) */, Tensor<T, 2> dy /* (N, out/tp) */,
                       State<T> beta) const;

 private:
  const ParameterStore<T>* parameters_;
  const TensorParallel<T>* tensor_;
  Index out_;  // of this rank
  Index in_;
  int weight_;
  int bias_;
};

/// Each rank holds some of the inputs and computes its summand of all outputs: the columns of W are cut; every rank
/// holds the bias, which is added once, after the sum. Its output joins the residual stream, whose type is Residual.
template <class T, class Residual = T>
class RowParallelLinear {
 public:
  RowParallelLinear(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const std::string& name, Index out,
                    Index in, Placement placement, double init_std);

  /// y = residual + x W^T + bias
  void forward_add(const ExecSpace& exec, Tensor<Residual, 2> y /* (R, out) */, Tensor<T, 2> x /* (N, in/tp) */,
                   Tensor<Residual, 2> residual /* (R, out) */) const;
  void backward_input(const ExecSpace& exec, Tensor<T, 2> dx /* (N, in/tp), = */,
                      Tensor<Residual, 2> dy /* (R, out) */) const;
  /// The same where x was gelu(up): dup is the gradient of that.
  void backward_input_gelu(const ExecSpace& exec, Tensor<T, 2> dup /* (N, in/tp), = */,
                           Tensor<Residual, 2> dy /* (R, out) */, Tensor<T, 2> up /* (N, in/tp) */) const;
  void backward_weight(const ExecSpace& exec, Tensor<T, 2> x /* (N, in/tp) */, Tensor<Residual, 2> dy /* (R, out) */,
                       State<T> beta) const;

 private:
  const ParameterStore<T>* parameters_;
  const TensorParallel<T>* tensor_;
  Index out_;
  Index in_;  // of this rank
  int weight_;
  int bias_;
};

}  // namespace espalier
