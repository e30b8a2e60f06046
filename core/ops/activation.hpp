// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/tensor.hpp"

// Activation functions by name (core/ops/activation_functions.hpp). Saved for backward: x.

namespace espalier {

/// y = f(x). For a name with a gate (SwiGLU and GeGLU: Shazeer, 2020) y = f(gate) * up with x = [gate | up].
/// @pre the name is in the table (core/ops/activation_names.hpp)
template <class T>
void activation_forward(const ExecSpace& exec, std::string_view activation, Tensor<T, 2> y /* (N, F) */,
                        Tensor<T, 2> x /* (N, F), or (N, 2F) */);

/// dx = dy * f'(x); dx may be dy. With a gate dx = [dy * up * f'(gate) | dy * f(gate)]; dx may be x, and dy may be the
/// left or the right half of dx: rows of any array may lie apart.
template <class T>
void activation_backward(const ExecSpace& exec, std::string_view activation, Tensor<T, 2> dx /* as x, = */,
                         Tensor<T, 2> dy /* (N, F) */, Tensor<T, 2> x /* (N, F), or (N, 2F) */);

}  // namespace espalier
