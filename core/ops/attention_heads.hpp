// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention_shape.hpp"
#include "core/tensor.hpp"
#include "core/vector_math.hpp"

namespace espalier::impl {

/// Where one head of one sequence lies: rows (T) of HS channels.
template <class T>
struct HeadRows {
  T* first;
  Index stride;
  KOKKOS_INLINE_FUNCTION T* row(Index t) const { return first + t * stride; }
};

/// Heads in a row of qkv; those of out lie as those of Q.
enum class HeadPart { query, key, value };

/// Q of head b*NH + h, or the K or V of its group; of qkv (B*T, (NH + 2 NKV)*HS), or of out (B*T, Cl).
template <class T>
KOKKOS_INLINE_FUNCTION HeadRows<T> head_of(const Tensor<T, 2>& array, const AttentionShape& shape, Index head,
                                           HeadPart part = HeadPart::query) {
  const Index b = head / shape.num_heads, h = head % shape.num_heads;
  const Index stride = array.extent(1);
  Index column = h;
  if (part != HeadPart::query)
    column =
        shape.num_heads + (part == HeadPart::value ? shape.num_kv_heads : 0) + h * shape.num_kv_heads / shape.num_heads;
  return {array.data() + b * shape.sequence_length * stride + column * shape.head_size, stride};
}

/// The documents of the sequences, which see nothing of each other. A document's positions count up from 0.
struct Documents {
  Tensor<int, 1> positions;  ///< (B*T), of each token in its document and sequence; empty: a sequence is one document
  Index sequence_length;     ///< T

  /// Where the document of token t of sequence b starts in the sequence.
  KOKKOS_INLINE_FUNCTION Index start(Index b, Index t) const {
    return positions.extent(0) == 0 ? 0 : t - positions(b * sequence_length + t);
  }
  /// Behind its last token: starts never fall, so halving finds the last token that has this one's.
  KOKKOS_INLINE_FUNCTION Index end(Index b, Index t) const {
    if (positions.extent(0) == 0)
      return sequence_length;
    Index inside = t, outside = sequence_length;
    while (outside - inside > 1) {
      const Index middle = (inside + outside) / 2;
      (start(b, middle) <= t ? inside : outside) = middle;
    }
    return outside;
  }
};

/// The first key that a query sees, of a document that starts at `start`.
KOKKOS_INLINE_FUNCTION Index first_key(const AttentionShape& shape, Index query, Index start = 0) {
  return shape.window > 0 && query - start >= shape.window ? query + 1 - shape.window : start;
}

/// Behind the last query that sees a key, of a document that ends at `end`.
KOKKOS_INLINE_FUNCTION Index end_of_queries(const AttentionShape& shape, Index key, Index end) {
  return shape.window > 0 ? smaller(key + shape.window, end) : end;
}

}  // namespace espalier::impl
