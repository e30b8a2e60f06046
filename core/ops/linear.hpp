// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

namespace espalier {

/// y = x W^T + bias, with y (N, O), x (N, I), weight (O, I), bias (O). A GEMM library that adds the bias itself does it
/// on the way, in fp32; for others y is filled with it first. The gradients are products (matmul) and bias_backward().
template <class T>
void linear_forward(const ExecSpace& exec, Tensor<T, 2> y, Tensor<T, 2> x, Tensor<T, 2> weight, Tensor<T, 1> bias);

}  // namespace espalier
