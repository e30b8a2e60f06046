// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/group_key.hpp"
#include "core/scalars.hpp"

namespace espalier {

/// A half-open range of indices.
struct IndexRange {
  Index begin = 0;
  Index end = 0;
  Index size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

/// What two ranges share; empty if they are disjoint.
IndexRange intersection(IndexRange a, IndexRange b);

/// The part of a logical tensor that this rank holds: dimension `dim` is cut into `parts` along an axis, and ours is
/// `part`. If the extent does not divide, the first parts are one longer: nothing is padded.
struct Shard {
  int dim = 0;
  Index part = 0;
  Index parts = 1;
  Axis axis = Axis::tp;

  /// Our indices along `dim`, which is `extent` long.
  IndexRange range(Index extent) const;
};

struct ParameterSpec {
  std::string name;          ///< logical, the same on every layout: "h.3.mlp.up.weight"
  std::vector<Index> shape;  ///< global
  Shard shard = {};
  int chunk = 0;  ///< model chunk (virtual stage) on this rank
  int block = 0;  ///< position inside the chunk, in forward order
  /// Axes, beside token_axes, along which ranks hold the same elements and whose gradients are partial sums: tp if each
  /// tp rank applies the parameter to other rows or heads. Along other axes ranks hold other elements, or replicas.
  AxisSet partial = {};
  int tp_run = 0;            ///< with tp in `partial`: see GroupKey
  bool tied = false;         ///< held by the first and by the last stage, which both contribute to its gradient
  bool weight_decay = true;  ///< false for biases and norms
  /// Lies right behind the parameter of the same segment (core/parameter.hpp) that was declared before it, so that one
  /// matmul can use both.
  bool joins_previous = false;
  double init_mean = 0;
  double init_std = 0;
  std::string init_stream = {};  ///< names the random numbers of the initial values; empty: `name`
  Index init_first = 0;          ///< index of the first element in that stream
  Index row_multiple = 1;        ///< so many rows belong together in memory: see ParameterStore::padded_weight()

  /// Over which ranks its gradient is summed: those that hold the same elements and have partial sums of the gradient.
  /// The axes are token_axes without the axis of `shard`, and `partial`.
  GroupKey group() const {
    const AxisSet cut = shard.parts > 1 ? AxisSet{shard.axis} : AxisSet{};
    return {.axes = token_axes.without(cut) | partial, .tied = tied, .tp_run = tp_run};
  }
};

/// A named window into the flat arrays of a ParameterStore.
struct Parameter {
  ParameterSpec spec;
  std::vector<Index> local_shape;
  Index offset = 0;  ///< elements from the start of the flat arrays
  Index size = 0;    ///< local elements
  Index padded_rows() const { return (local_shape[0] + spec.row_multiple - 1) / spec.row_multiple * spec.row_multiple; }
  IndexRange flat_range() const { return {offset, offset + size}; }
};

/// A contiguous run of parameters that are reduced and updated alike.
struct Segment {
  static constexpr Index alignment = 256;  ///< elements: each begins at a multiple
  int chunk = 0;
  int block = 0;
  GroupKey group = {};
  bool weight_decay = true;
  Index offset = 0;
  Index size = 0;  ///< with padding, which is zero in every array and stays zero
  IndexRange flat_range() const { return {offset, offset + size}; }
};

/// Index into the global tensor of element `local` of a shard.
Index global_index(const ParameterSpec& spec, Index local);

}  // namespace espalier
