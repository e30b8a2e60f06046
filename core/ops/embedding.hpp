// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/tensor.hpp"

// Token and learned position embedding: x(b, t, :) = token_embedding(token(b, t), :) + position_embedding(t, :).
// N = B*T rows, row n at position n % T. Saved for backward: the tokens. Either table may be applied to a part of the
// problem: a rank that holds rows [first_token, first_token + Vl) of the token embedding treats other tokens as zero
// rows; positions may be added to R rows of the N, the first of which is `first_row`.

namespace espalier {

/// x(n, :) = token_embedding(token(n) - first_token, :), zero for tokens outside of the table.
template <class T>
void embedding_forward(const ExecSpace& exec, Tensor<T, 2> x /* (N, C) */, Tensor<TokenId, 1> tokens /* (N) */,
                       Tensor<T, 2> token_embedding /* (Vl, C) */, Index first_token = 0);

/// Integers of scratch that embedding_backward wants, for a table of Vl rows: none on hosts.
inline constexpr Index embedding_scratch(Index vocabulary /* Vl */) { return exec_is_host ? 0 : 2 * vocabulary; }

/// Adds each row's gradient to the row of the table that it came from, in row order: a token that occurs twice is
/// summed in the same order on every run.
template <class T>
void embedding_backward(const ExecSpace& exec, Tensor<State<T>, 2> dtoken_embedding /* (Vl, C), += */,
                        Tensor<T, 2> dx /* (N, C) */, Tensor<TokenId, 1> tokens /* (N) */,
                        Tensor<int, 1> scratch /* (embedding_scratch(Vl)) */, Index first_token = 0);

/// x(r, :) = embedded(r, :) + position_embedding((first_row + r) % T, :), or, where they are given, (of_rows(r), :). Of
/// one type, x may be `embedded`. Residual is the type of the residual stream.
template <class T, class Residual = T>
void add_positions(const ExecSpace& exec, Tensor<Residual, 2> x /* (R, C) */, Tensor<T, 2> embedded /* (R, C) */,
                   Tensor<T, 2> position_embedding /* (P, C) */, Index sequence_length /* T <= P */,
                   Index first_row = 0, Tensor<int, 1> of_rows = {} /* (R) */);

/// Adds each row's gradient to its position, in row order.
template <class T>
void add_positions_backward(const ExecSpace& exec, Tensor<State<T>, 2> dposition_embedding /* (P, C), += */,
                            Tensor<T, 2> dx /* (R, C) */, Index sequence_length /* T */, Index first_row = 0);

}  // namespace espalier
