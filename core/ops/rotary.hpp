// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/rotary_frequencies.hpp"
#include "core/tensor.hpp"

// Rotary positions (Su et al., RoFormer, 2021): channels i and i + HR/2 of a head are a pair, as in Hugging Face's
// models, which at position p is rotated by the angle p f(i). The first HR of the HS channels of a head are rotated,
// the others stay:
//   (a, b) -> (a cos - b sin, b cos + a sin)
// A score q.k then depends on the distance of its positions. Nothing is saved for backward, which rotates gradients
// back.

namespace espalier {

/// table(p, :) = [cosines | sines] of p f, times the attention factor: computed in fp64 on the host.
template <class S>
void make_rotary_table(const ExecSpace& exec, Tensor<S, 2> table /* (P, HR), = */,
                       const RotaryFrequencies& frequencies);

/// Where rows stand: row n at position of_rows(n), or, without these, at n % T. All are below P.
struct RowPositions {
  Index sequence_length = 1;    ///< T
  Tensor<int, 1> of_rows = {};  ///< (N), of rows that are no whole sequences

  KOKKOS_INLINE_FUNCTION Index operator()(Index n) const {
    return of_rows.extent(0) > 0 ? static_cast<Index>(of_rows(n)) : n % sequence_length;
  }
};

/// Rotates the first `heads` heads of each row: of [Q | K | V] those of Q and K. Rows may lie apart.
template <class T>
void rotary_forward(const ExecSpace& exec, Tensor<T, 2> rows /* (N, heads*HS or more), in place */, Index heads,
                    Index head_size /* HS */, Tensor<State<T>, 2> table /* (P, HR) */, const RowPositions& positions);

/// The gradients before the rotation, from those after it.
template <class T>
void rotary_backward(const ExecSpace& exec, Tensor<T, 2> drows /* (N, heads*HS or more), in place */, Index heads,
                     Index head_size /* HS */, Tensor<State<T>, 2> table /* (P, HR) */, const RowPositions& positions);

}  // namespace espalier
