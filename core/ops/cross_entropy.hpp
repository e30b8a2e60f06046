// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

// Softmax and cross-entropy in one: loss(n) = log(sum_v exp(logits(n, v))) - logits(n, target(n)).
// A row whose target is negative is ignored: no loss, no gradient. V = vocabulary; the logits may have more columns
// (Vp, padded to a good width for the matrix units), which count as minus infinity.

namespace espalier {

/// Losses of the rows; logits are left as they are.
template <class T>
void cross_entropy_forward(const ExecSpace& exec, Tensor<State<T>, 1> losses /* (N) */,
                           Tensor<T, 2> logits /* (N, Vp) */, Tensor<TokenId, 1> targets /* (N) */,
                           Index vocab_size /* V */);

/// Losses of the rows, and in place of the logits their gradient: scale * (softmax - onehot(target)). With
/// scale = 1 / (valid tokens of the whole step, over all ranks) the losses of any layout average alike.
template <class T>
void cross_entropy_forward_backward(const ExecSpace& exec, Tensor<State<T>, 1> losses /* (N) */,
                                    Tensor<T, 2> logits /* (N, Vp), becomes dlogits */,
                                    Tensor<TokenId, 1> targets /* (N) */, Index vocab_size /* V */, State<T> scale);

/// total() += scale * sum of losses, summed in fp64 in row order.
template <class S>
void add_losses(const ExecSpace& exec, Tensor<double, 0> total, Tensor<S, 1> losses /* (N) */, double scale);

}  // namespace espalier
