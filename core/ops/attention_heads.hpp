// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention_shape.hpp"
#include "core/tensor.hpp"

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
  if (part != HeadPart::query)
    column = shape.num_heads + (part == HeadPart::value ? shape.kv_heads() : 0) + h / shape.group();
  return {array.data() + b * shape.sequence_length * stride + column * shape.head_size, stride};
}

}  // namespace espalier::impl
