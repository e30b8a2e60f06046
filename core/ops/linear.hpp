// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

// A linear layer with what stands next to it, y = x W^T + bias with y (N, O), x (N, I), W (O, I), bias (O). A GEMM
// library that adds a bias, applies GELU or sums gradients itself does it on the way, in fp32 (oneDNN the bias,
// cuBLASLt all of it); with others these are passes of their own. An empty bias, or gradient of it, is none.

namespace espalier {

/// y = x W^T + bias
template <class T>
void linear_forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x, Tensor<T, 2> weight, Tensor<T, 1> bias);

/// up = x W^T + bias, y = gelu(up)
template <class T>
void linear_gelu_forward(const ExecSpace& exec, Tensor<T, 2> y /* (N, O) */, Tensor<T, 2> up /* (N, O) */,
                         Tensor<T, 2> x, Tensor<T, 2> weight, Tensor<T, 1> bias);

/// y = x W^T + bias + residual
template <class T>
void linear_add_forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x, Tensor<T, 2> weight, Tensor<T, 1> bias,
                        Tensor<T, 2> residual /* (N, O) */);

/// dup = (dy W) * gelu'(up): the gradient of x = gelu(up), and further through GELU.
template <class T>
void linear_gelu_backward_input(const ExecSpace& exec, Tensor<T, 2> dup /* (N, I) */, Tensor<T, 2> dy /* (N, O) */,
                                Tensor<T, 2> weight, Tensor<T, 2> up /* (N, I) */);

/// dW = dy^T x + beta dW, dbias = column sums of dy + beta dbias; beta 0 or 1.
template <class T>
void linear_backward_weight(const ExecSpace& exec, Tensor<State<T>, 2> dweight, Tensor<State<T>, 1> dbias,
                            Tensor<T, 2> dy /* (N, O) */, Tensor<T, 2> x, State<T> beta);

}  // namespace espalier
