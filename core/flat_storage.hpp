// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/flat_sharding.hpp"
#include "core/memory_ledger.hpp"
#include "core/tensor.hpp"

namespace espalier {

/// One flat array of a rank, weights or gradients. It is whole, or (ZeRO-2, ZeRO-3; Rajbhandari et al., 2020) a shard
/// with buffers for whole units, which layers use.
template <class V>
class FlatStorage {
 public:
  FlatStorage() = default;
  /// The whole array, zeroed.
  FlatStorage(Category category, Index flat_size);
  FlatStorage(Category category, Index flat_size, FlatSharding sharding);
  /// The whole array, in memory of the caller.
  FlatStorage(Tensor<V, 1> values);  // NOLINT(google-explicit-constructor): a window, as a tensor of a pointer is

  /// The ranges that are held, one after another in values().
  const std::vector<IndexRange>& held() const { return held_; }
  Tensor<V, 1> values() const { return values_; }
  /// Offset of a held element in values().
  Index offset_of(Index element) const;

  /// The unit of an element; -1: it is in none, and always held.
  int unit_of(Index element) const;
  const std::vector<IndexRange>& units() const { return sharding_.units; }
  int num_buffers() const { return sharding_.buffers; }
  int buffer_of(int unit) const { return unit % sharding_.buffers; }
  Tensor<V, 1> buffers() const { return buffers_; }  ///< (num_buffers, buffer_size)
  /// Offset of an element of a unit in buffers().
  Index buffer_offset(Index element) const;

  /// Where layers read or write the element, and those after it in its unit.
  V* data(Index element) const;

 private:
  struct Run {
    IndexRange range;
    Index offset;
  };
  std::vector<IndexRange> held_;
  std::vector<Run> runs_;  // the same, ascending
  FlatSharding sharding_;
  Tensor<V, 1> values_;
  Tensor<V, 1> buffers_;
};

}  // namespace espalier
