// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

// Root mean square normalisation (Zhang and Sennrich, 2019), over C channels:
//   y = xhat * weight,  xhat = x * rstd,  rstd = 1 / sqrt(mean(x^2) + eps)
// N = B*T rows of G groups of C channels, each group normalised by itself with the same weights. In the residual stream
// G = 1. For norms on Q and K (Dehghani et al., ViT-22B, 2023) the groups are heads, and the arrays windows of wider
// rows, [Q | K | V]: rows of any array may lie apart. Saved for backward: x, rstd. Residual is the type of the residual
// stream, of x and dx.

namespace espalier {

template <class T, class Residual = T>
void rmsnorm_forward(const ExecSpace& exec, Tensor<T, 2> y /* (N, G*C) */, Tensor<State<T>, 1> rstd /* (N*G) */,
                     Tensor<Residual, 2> x /* (N, G*C) */, Tensor<T, 1> weight /* (C) */, double eps);

/// P, the rows of partial sums with which rmsnorm_backward_input spares rmsnorm_backward_weight another reading of dy
/// and x. 0 where that does not pay (on hosts). For G = 1.
Index rmsnorm_partial_rows(Index rows /* N */, Index channels /* C */);

/// dx = dstream + the input gradient; dstream is the gradient that passes along the residual stream, and may be dx; an
/// empty one is none. If T is Residual, dx may be dy. `partial`, where it has rows, is overwritten: the gradients of
/// weight, in row p the sum over n = p, p + P, ...
/// @pre with partial sums: G = 1, a dstream, and arrays without gaps
template <class T, class Residual = T>
void rmsnorm_backward_input(const ExecSpace& exec, Tensor<Residual, 2> dx /* (N, G*C), = */,
                            Tensor<Residual, 2> dstream /* (N, G*C) */, Tensor<T, 2> dy /* (N, G*C) */,
                            Tensor<Residual, 2> x /* (N, G*C) */, Tensor<State<T>, 1> rstd /* (N*G) */,
                            Tensor<T, 1> weight /* (C) */, Tensor<State<T>, 2> partial = {} /* (P, C), = */);

/// dweight = the gradient + beta dweight; beta 0 or 1. From `partial`, where it has rows, else from dy and x.
template <class T, class Residual = T>
void rmsnorm_backward_weight(const ExecSpace& exec, Tensor<State<T>, 1> dweight /* (C) */,
                             Tensor<T, 2> dy /* (N, G*C) */, Tensor<Residual, 2> x /* (N, G*C) */,
                             Tensor<State<T>, 1> rstd /* (N*G) */, State<T> beta,
                             Tensor<State<T>, 2> partial = {} /* (P, C) */);

}  // namespace espalier
