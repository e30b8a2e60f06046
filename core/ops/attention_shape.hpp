// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Macros.hpp>

#include "core/scalars.hpp"

namespace espalier {

struct AttentionShape {
  Index batch;             ///< B
  Index sequence_length;   ///< T
  Index num_heads;         ///< NH (local), of queries
  Index head_size;         ///< HS
  Index num_kv_heads = 0;  ///< NKV (local), of keys and values; 0: NH. It divides NH.
  Index window = 0;        ///< W: a query sees the last W keys, itself included; 0: all up to itself

  KOKKOS_INLINE_FUNCTION Index kv_heads() const { return num_kv_heads == 0 ? num_heads : num_kv_heads; }
  KOKKOS_INLINE_FUNCTION Index group() const { return num_heads / kv_heads(); }         ///< query heads of a key head
  KOKKOS_INLINE_FUNCTION Index query_columns() const { return num_heads * head_size; }  ///< Cl
  KOKKOS_INLINE_FUNCTION Index qkv_columns() const {
    return (num_heads + 2 * kv_heads()) * head_size;
  }  ///< of [Q | K | V]
  /// The first key that a query sees.
  KOKKOS_INLINE_FUNCTION Index first_key(Index query) const {
    return window > 0 && query >= window ? query + 1 - window : 0;
  }
  /// Behind the last query that sees a key.
  KOKKOS_INLINE_FUNCTION Index end_of_queries(Index key) const {
    return window > 0 && key + window < sequence_length ? key + window : sequence_length;
  }
  /// Keys that a query sees, summed over the queries of a sequence.
  double seen_keys() const {
    const auto length = static_cast<double>(sequence_length), width = static_cast<double>(window);
    return window > 0 && window < sequence_length ? width * (length - (width - 1) / 2) : length * (length + 1) / 2;
  }
};

}  // namespace espalier
