// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

// The passes around a linear layer. N rows, F columns.

namespace espalier {

/// y(n, :) = product(n, :) + residual(n, :) + bias; an empty bias is none. Of one type, y may be that product. Residual
/// is the type of the residual stream.
template <class T, class Residual = T>
void add_bias_and_residual(const ExecSpace& exec, Tensor<Residual, 2> y /* (N, F) */, Tensor<T, 2> product /* (N, F) */,
                           Tensor<T, 1> bias /* (F) */, Tensor<Residual, 2> residual /* (N, F) */);

/// dbias = the column sums of dy + beta dbias, beta 0 or 1.
template <class T>
void bias_backward(const ExecSpace& exec, Tensor<State<T>, 1> dbias /* (F) */, Tensor<T, 2> dy /* (N, F) */,
                   State<T> beta);

/// to(i) = from(i), rounded or widened to another type.
template <class To, class From>
void convert(const ExecSpace& exec, Tensor<To, 1> to /* (size) */, Tensor<From, 1> from /* (size) */);

/// a = b + s c: what the bandwidth of memory is measured by. 12 bytes an element.
void triad(const ExecSpace& exec, Tensor<float, 2> a /* (N, W) */, Tensor<float, 2> b /* (N, W) */,
           Tensor<float, 2> c /* (N, W) */, float s);

/// Arrays of the triad, (triad_rows, triad_width), that no cache holds.
inline constexpr Index triad_width = 4096;
inline constexpr Index triad_rows = exec_is_host ? 4096 : 32768;

}  // namespace espalier
