// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

// GELU in the tanh form of GPT-2 (Hendrycks and Gimpel, 2016), written with the logistic function:
//   y = x * sigmoid(2u),  u = sqrt(2/pi) * (x + 0.044715 x^3),  as 1 + tanh(u) = 2 sigmoid(2u)
// Saved for backward: x.

namespace espalier {

template <class T>
void gelu_forward(const ExecSpace& exec, Tensor<T, 2> y /* (N, F) */, Tensor<T, 2> x /* (N, F) */);

/// dx = dy * gelu'(x); dx may be dy.
template <class T>
void gelu_backward(const ExecSpace& exec, Tensor<T, 2> dx /* (N, F) */, Tensor<T, 2> dy /* (N, F) */,
                   Tensor<T, 2> x /* (N, F) */);

}  // namespace espalier
