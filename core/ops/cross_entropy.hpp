// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

// Softmax and cross-entropy in one: loss(n) = log(sum_v exp(logits(n, v))) - logits(n, target(n)).
// A row whose target is negative is ignored: no loss, no gradient. N rows, V tokens of the vocabulary.

namespace espalier {

/// Losses of the rows; logits are left as they are.
template <class T>
void cross_entropy_forward(const ExecSpace& exec, Tensor<State<T>, 1> losses /* (N) */,
                           Tensor<T, 2> logits /* (N, V) */, Tensor<TokenId, 1> targets /* (N) */);

/// Losses of the rows, and in place of the logits their gradient: scale * (softmax - onehot(target)). With
/// scale = 1 / (valid tokens of the whole step, over all ranks) the losses of any layout average alike.
template <class T>
void cross_entropy_forward_backward(const ExecSpace& exec, Tensor<State<T>, 1> losses /* (N) */,
                                    Tensor<T, 2> logits /* (N, V), becomes dlogits */,
                                    Tensor<TokenId, 1> targets /* (N) */, State<T> scale);

// The same over a vocabulary that is split between ranks: each holds columns [first_token, first_token + Vl). Between
// the calls `largest` is reduced to the maximum over ranks, then `sums` to the sum.

/// largest(n) = the largest of our logits of row n.
template <class T>
void cross_entropy_largest(const ExecSpace& exec, Tensor<State<T>, 1> largest /* (N) */,
                           Tensor<T, 2> logits /* (N, Vl) */);

/// sums(n) = sum of exp(logit - largest) over our columns; sums(N + n) = the target's logit, or 0 where it is not ours.
template <class T>
void cross_entropy_sums(const ExecSpace& exec, Tensor<State<T>, 1> sums /* (2N) */, Tensor<T, 2> logits /* (N, Vl) */,
                        Tensor<TokenId, 1> targets /* (N) */, Tensor<State<T>, 1> largest /* (N) */, Index first_token);

/// Losses of the rows from the reduced `largest` and `sums`.
template <class S>
void cross_entropy_losses(const ExecSpace& exec, Tensor<S, 1> losses /* (N) */, Tensor<TokenId, 1> targets /* (N) */,
                          Tensor<S, 1> largest /* (N) */, Tensor<S, 1> sums /* (2N) */);

/// In place of our logits their gradient, from the reduced `largest` and `sums`.
template <class T>
void cross_entropy_split_backward(const ExecSpace& exec, Tensor<T, 2> logits /* (N, Vl), becomes dlogits */,
                                  Tensor<TokenId, 1> targets /* (N) */, Tensor<State<T>, 1> largest /* (N) */,
                                  Tensor<State<T>, 1> sums /* (2N) */, Index first_token, State<T> scale);

/// total() += scale * sum of losses, summed in fp64 in a fixed order.
template <class S>
void add_losses(const ExecSpace& exec, Tensor<double, 0> total, Tensor<S, 1> losses /* (N) */, double scale);

}  // namespace espalier
