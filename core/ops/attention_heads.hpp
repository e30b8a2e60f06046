// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention_shape.hpp"
#include "core/tensor.hpp"
#include "core/vector_math.hpp"

namespace espalier::impl {

/// Where one head of one sequence lies: rows (T) of HS channels.
template <class T>
struct Head {
  T* first;
  Index stride;
  KOKKOS_INLINE_FUNCTION T* row(Index t) const { return first + t * stride; }
};

/// Heads in a row of qkv; those of out lie as those of Q.
enum class HeadPart { query, key, value };

/// Q of head b*NH + h, or the K or V of its group; of qkv (B*T, (NH + 2 NKV)*HS), or of out (B*T, Cl).
template <class T>
KOKKOS_INLINE_FUNCTION Head<T> head_of(const Tensor<T, 2>& array, const AttentionShape& shape, Index head,
                                       HeadPart part = HeadPart::query) {
  const Index b = head / shape.num_heads, h = head % shape.num_heads;
  const Index stride = array.extent(1);
  Index column = h;
  if (part != HeadPart::query) {
    const Index kv_heads = shape.num_kv_heads == 0 ? shape.num_heads : shape.num_kv_heads;
    column = shape.num_heads + (part == HeadPart::value ? kv_heads : 0) + h / (shape.num_heads / kv_heads);
  }
  return {array.data() + b * shape.sequence_length * stride + column * shape.head_size, stride};
}

/// The first key that a query sees.
KOKKOS_INLINE_FUNCTION Index first_key(const AttentionShape& shape, Index query) {
  return shape.window > 0 && query >= shape.window ? query + 1 - shape.window : 0;
}

/// Behind the last query that sees a key.
KOKKOS_INLINE_FUNCTION Index end_of_queries(const AttentionShape& shape, Index key) {
  return shape.window > 0 ? smaller(key + shape.window, shape.sequence_length) : shape.sequence_length;
}

}  // namespace espalier::impl
