// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.hpp"

// Activation functions by name (core/ops/activation_functions.hpp). Saved for backward: x.

namespace espalier {

/// "gelu", "swiglu", ...: all in the table, in its order.
std::vector<std::string> activation_names();

/// Does it multiply the function of one half of its input with the other half, as SwiGLU (Shazeer, 2020)?
/// @pre the name is in the table, also below
bool is_gated(std::string_view activation);

/// y = f(x), for a name without a gate.
template <class T>
void activation_forward(const ExecSpace& exec, std::string_view activation, Tensor<T, 2> y /* (N, F) */,
                        Tensor<T, 2> x /* (N, F) */);

/// dx = dy * f'(x); dx may be dy.
template <class T>
void activation_backward(const ExecSpace& exec, std::string_view activation, Tensor<T, 2> dx /* (N, F) */,
                         Tensor<T, 2> dy /* (N, F) */, Tensor<T, 2> x /* (N, F) */);

}  // namespace espalier
