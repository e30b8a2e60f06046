// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

// Layer normalisation (Ba, Kiros and Hinton, 2016), over the last dimension:
//   y = xhat * weight + bias,  xhat = (x - mean) * rstd,  rstd = 1 / sqrt(variance + eps)
// N = B*T rows, C channels. Saved for backward: x, mean, rstd. Residual is the type of the residual stream, of x and
// dx.

namespace espalier {

template <class T, class Residual = T>
void layernorm_forward(const ExecSpace& exec, Tensor<T, 2> y /* (N, C) */, Tensor<State<T>, 1> mean /* (N) */,
                       Tensor<State<T>, 1> rstd /* (N) */, Tensor<Residual, 2> x /* (N, C) */,
                       Tensor<T, 1> weight /* (C) */, Tensor<T, 1> bias /* (C) */, double eps = 1e-5);

/// Rows of partial sums with which layernorm_backward_input spares layernorm_backward_weight another reading of dy and
/// x: P. None on hosts, where it walks columns through caches, and for channels that a team cannot take as a pack a
/// thread.
Index layernorm_partial_rows(Index rows /* N */, Index channels /* C */);

/// dx = dstream + the input gradient; dstream is the gradient that passes along the residual stream, and may be dx.
/// `partial`, where it has rows, is overwritten: the gradients of weight, in row p the sum over n = p, p + P, ..., and
/// behind them those of bias.
template <class T, class Residual = T>
void layernorm_backward_input(const ExecSpace& exec, Tensor<Residual, 2> dx /* (N, C), = */,
                              Tensor<Residual, 2> dstream /* (N, C) */, Tensor<T, 2> dy /* (N, C) */,
                              Tensor<Residual, 2> x /* (N, C) */, Tensor<State<T>, 1> mean /* (N) */,
                              Tensor<State<T>, 1> rstd /* (N) */, Tensor<T, 1> weight /* (C) */,
                              Tensor<State<T>, 2> partial = {} /* (P, 2C), = */);

/// dweight = the gradient + beta dweight, and so dbias; beta 0 or 1. From `partial`, where it has rows, else from dy
/// and x.
template <class T, class Residual = T>
void layernorm_backward_weight(const ExecSpace& exec, Tensor<State<T>, 1> dweight /* (C) */,
                               Tensor<State<T>, 1> dbias /* (C) */, Tensor<T, 2> dy /* (N, C) */,
                               Tensor<Residual, 2> x /* (N, C) */, Tensor<State<T>, 1> mean /* (N) */,
                               Tensor<State<T>, 1> rstd /* (N) */, State<T> beta,
                               Tensor<State<T>, 2> partial = {} /* (P, 2C) */);

}  // namespace espalier
