// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention_shape.hpp"
#include "core/tensor.hpp"

// Attention over the keys and values that a cache keeps of several sequences: what generation computes for each token.
// S sequences of up to P positions; N rows, each of any of them. Other letters as in core/ops/attention.

namespace espalier {

/// Where rows stand in a cache.
struct CachedRows {
  Tensor<int, 1> sequences;  ///< (N), below S
  Tensor<int, 1> positions;  ///< (N), below P
};

/// Stores [K | V] of each row of qkv at its sequence and position in the cache. Then out = the attention of each row's
/// queries to the cached keys of its sequence, from position 0, or the begin of the window, to its own position. A
/// row's bits depend on no other row. Of `shape` batch and sequence_length are not read.
/// @pre no two rows have the same sequence and position; the cache has the positions before those of `rows`
template <class T>
void attention_cached(const ExecSpace& exec, Tensor<T, 2> out /* (N, Cl), = */, Tensor<T, 2> qkv /* (N, Ql) */,
                      Tensor<T, 3> cache /* (S, P, 2 NKV*HS) */, const CachedRows& rows, const AttentionShape& shape);

}  // namespace espalier
