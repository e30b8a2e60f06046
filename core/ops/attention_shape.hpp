// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/scalars.hpp"

namespace espalier {

struct AttentionShape {
  Index batch;             ///< B
  Index sequence_length;   ///< T
  Index num_heads;         ///< NH (local), of queries
  Index head_size;         ///< HS
  Index num_kv_heads = 0;  ///< NKV (local), of keys and values; 0: NH. It divides NH.
  Index window = 0;        ///< W: a query sees the last W keys, itself included; 0: all up to itself

  Index kv_heads() const { return num_kv_heads == 0 ? num_heads : num_kv_heads; }
  Index group() const { return num_kv_heads == 0 ? 1 : num_heads / num_kv_heads; }  ///< heads that share keys
  Index qkv_columns() const { return (num_heads + 2 * kv_heads()) * head_size; }    ///< Ql, of [Q | K | V]
  /// Keys that a query sees, summed over the queries of a sequence.
  double seen_keys() const {
    const auto length = static_cast<double>(sequence_length), width = static_cast<double>(window);
    return window > 0 && window < sequence_length ? width * (length - (width - 1) / 2) : length * (length + 1) / 2;
  }
};

}  // namespace espalier
