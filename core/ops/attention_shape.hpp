// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "core/scalars.hpp"

namespace espalier {

/// Of scores, before the softmax.
inline double attention_scale(Index head_size) { return 1 / std::sqrt(static_cast<double>(head_size)); }

/// Keys that a query sees, summed over the queries of a sequence: all up to itself, or the last `window` of these.
inline double seen_keys(Index sequence_length, Index window) {
  const auto length = static_cast<double>(sequence_length), width = static_cast<double>(window);
  return window > 0 && window < sequence_length ? width * (length - (width - 1) / 2) : length * (length + 1) / 2;
}

struct AttentionShape {
  Index batch;            ///< B
  Index sequence_length;  ///< T
  Index num_heads;        ///< NH (local), of queries
  Index head_size;        ///< HS
  Index num_kv_heads;     ///< NKV (local), of keys and values; divides NH
  Index window = 0;       ///< W: a query sees the last W keys, itself included; 0: all up to itself

  Index group() const { return num_heads / num_kv_heads; }                          ///< heads that share keys
  Index qkv_columns() const { return (num_heads + 2 * num_kv_heads) * head_size; }  ///< Ql, of [Q | K | V]
  double scale() const { return attention_scale(head_size); }
  double seen_keys() const { return espalier::seen_keys(sequence_length, window); }
};

}  // namespace espalier
