// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention_shape.hpp"
#include "core/tensor.hpp"

// Attention of new positions of a sequence over the keys and values of all its positions, which a cache keeps: what
// generation computes for each token. Letters as in core/ops/attention.

namespace espalier {

/// cache(first + n, :) = [K | V] of row n of qkv. A row of the cache has the 2 NKV*HS channels of a position.
template <class T>
void store_keys_and_values(const ExecSpace& exec, Tensor<T, 2> cache /* (P, 2 NKV*HS) */,
                           Tensor<T, 2> qkv /* (N, Ql) */, Index first, const AttentionShape& shape);

/// The queries of row n of qkv, at position first + n, over the cached keys up to that position.
/// @pre first + N <= P; the cache has the keys and values of all positions up to the last row's
template <class T>
void attention_cached(const ExecSpace& exec, Tensor<T, 2> out /* (N, Cl), = */, Tensor<T, 2> qkv /* (N, Ql) */,
                      Tensor<T, 2> cache /* (P, 2 NKV*HS) */, Index first, const AttentionShape& shape);

}  // namespace espalier
