// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

// Token and learned position embedding: x(b, t, :) = token_table(token(b, t), :) + position_table(t, :).
// N = B*T rows, row n at position n % T. Saved for backward: the tokens.

namespace espalier {

template <class T>
void embedding_forward(const ExecSpace& exec, Tensor<T, 2> x /* (N, C) */, Tensor<TokenId, 1> tokens /* (N) */,
                       Tensor<T, 2> token_table /* (V, C) */, Tensor<T, 2> position_table /* (P, C), P >= T */,
                       Index sequence_length /* T */);

/// Adds each row's gradient to the rows of both tables that it came from, in row order: a token that occurs twice is
/// summed in the same order on every run.
template <class T>
void embedding_backward(const ExecSpace& exec, Tensor<State<T>, 2> dtoken_table /* (V, C), += */,
                        Tensor<State<T>, 2> dposition_table /* (P, C), += */, Tensor<T, 2> dx /* (N, C) */,
                        Tensor<TokenId, 1> tokens /* (N) */, Index sequence_length /* T */);

}  // namespace espalier
