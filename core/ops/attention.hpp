// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention_shape.hpp"
#include "core/tensor.hpp"

// Causal multi-head attention, out = softmax(scale * Q K^T, keys up to the query) V with scale = 1 / sqrt(HS), in
// tiles with a running softmax (Dao et al., FlashAttention, 2022; Milakov and Gimelshein, 2018): of the (T, T) matrix
// of a head no more than one tile exists at a time.
//
// Letters: B sequences, T positions, NH heads of this rank, HS channels a head, Cl = NH*HS. A row of qkv is
// [Q of all heads, K of all heads, V of all heads].

namespace espalier {

/// Saved for backward: qkv, out and log_sum_exp, the logarithm of each softmax denominator.
template <class T>
void attention_forward(const ExecSpace& exec, Tensor<T, 2> out /* (B*T, Cl) */,
                       Tensor<State<T>, 1> log_sum_exp /* (B*NH*T) */, Tensor<T, 2> qkv /* (B*T, 3*Cl) */,
                       const AttentionShape& shape);

template <class T>
void attention_backward(const ExecSpace& exec, Tensor<T, 2> dqkv /* (B*T, 3*Cl), = */,
                        Tensor<T, 2> dout /* (B*T, Cl) */, Tensor<T, 2> out /* (B*T, Cl) */,
                        Tensor<State<T>, 1> log_sum_exp /* (B*NH*T) */, Tensor<T, 2> qkv /* (B*T, 3*Cl) */,
                        const AttentionShape& shape);

}  // namespace espalier
