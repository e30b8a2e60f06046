// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/flat_sharding.hpp"
#include "parallel/collectives/byte_range.hpp"
#include "parallel/collectives/collective_traffic.hpp"
#include "parallel/mesh/reduction_groups.hpp"
#include "parallel/reduction/flat_rows.hpp"

namespace espalier {

/// A run of the flat arrays that is reduced together.
struct Bucket {
  Index offset = 0;
  Index size = 0;
  int first_segment = 0;  ///< the segments that it touches, last included
  int last_segment = 0;
  GroupKey group = {};  ///< of its communicator
  int unit = -1;        ///< of ReductionPlan::units, in which it lies; -1: none
  /// Rank r of the communicator sums (and, with ZeRO-1, keeps) elements [bounds[r], bounds[r + 1]) of the flat array.
  std::vector<Index> bounds;

  IndexRange range() const { return {offset, offset + size}; }
  IndexRange slice(int rank) const {
    return {bounds[static_cast<std::size_t>(rank)], bounds[static_cast<std::size_t>(rank) + 1]};
  }
  /// The slices of all ranks, of an array of such elements that begins with the bucket.
  std::vector<ByteRange> byte_slices(Index element_bytes) const;
};

/// How gradients are cut into buckets. The size of a bucket is what its communicator sums over `buckets`, within the
/// limits. Small buckets start early, but each costs a message to every rank. Messages move on between kernels only, so
/// that what is in flight must be the gradients of two blocks or more; else links stand idle.
struct ReducerOptions {
  int buckets = 64;
  Index smallest_bucket_bytes = Index{1} << 20;
  Index bucket_bytes = Index{16} << 20;  ///< at most; wins over the smallest
  int buckets_in_flight = 16;            ///< of each communicator; each costs its share of a bucket of memory
  /// 1: gradients are summed where the optimizer state lies, weights are gathered after the update. 2: of layers a
  /// rank keeps the summed gradients of its slices only. 3: of their weights, too, which are gathered for each use.
  int zero_stage = 0;
  /// Of each chunk: its blocks 1 to n are layers, each a unit of stages 2 and 3. What is in no layer (the tables, the
  /// final norm) is treated as in stage 1.
  std::vector<Index> layers_of_chunk = {};
  /// To plan for many layers that are alike by a few: for how many each unit stands; empty: one.
  std::vector<Index> layer_times = {};
  /// 16-bit type in which gradients travel and sums are rounded; none: their own.
  std::optional<ScalarType> wire = std::nullopt;

  Index times_of(std::size_t unit) const { return layer_times.empty() ? 1 : layer_times.at(unit); }
};

/// The options where so many ranks sum together: slices of 256 KiB, which networks carry well, as far as buckets of
/// 128 MiB allow, and no more bytes in flight than by default, or two buckets.
ReducerOptions for_ranks(ReducerOptions options, int ranks);

/// What is reduced with whom in which order. Pure: a function of the layout and the sizes.
struct ReductionPlan {
  std::vector<Bucket> buckets;  ///< from the end of the flat arrays to their start; none over one rank alone
  /// Where the sum has a second level (GroupRank): our slice of each of `buckets`, in their order, cut among its ranks.
  /// Copies of a shard lie in no unit: they are summed in the shard, after the last micro-batch.
  std::vector<Bucket> second;
  bool has_copies = false;
  /// Those of `buckets` that lie in units, cut among all ranks between which ZeRO-3 gathers them: those of both levels,
  /// or of a copy.
  std::vector<Bucket> gathered;
  std::vector<IndexRange> owned;  ///< ascending: where this rank has the summed gradients
  std::vector<IndexRange> units;  ///< ascending: layers, in stages 2 and 3

  /// Is the state sharded over the ranks of both levels?
  bool has_two_levels() const { return !second.empty() && !has_copies; }

  FlatSharding weights(int zero_stage, int buffers) const;
  FlatSharding gradients(int buffers) const { return {owned, units, units.empty() ? 0 : buffers}; }
};

/// The buckets of a plan, not yet cut into slices.
struct FlatBuckets {
  std::vector<Bucket> buckets;
  std::vector<IndexRange> units;
  std::vector<IndexRange> alone;  ///< from the end: reduced with nobody
};
/// @pre there are segments
FlatBuckets flat_buckets(const std::vector<Segment>& segments, const FlatRows& rows, const GroupRanks& ranks,
                         const ReducerOptions& options, Index element_bytes);
Index flat_end_of(const std::vector<Segment>& segments);

/// Cuts the flat arrays of `element_bytes` an element from their end into buckets. A bucket never mixes communicators.
/// Buckets and slices are cut where a row of a parameter starts (its last dimension; a parameter of one dimension is
/// cut anywhere), so that padding goes with what is before it; a row longer than a bucket is one.
/// @param parameters in flat order; without any, cuts are anywhere.
ReductionPlan plan_reduction(const std::vector<Segment>& segments, const std::vector<Parameter>& parameters,
                             const GroupRanks& ranks, const ReducerOptions& options, Index element_bytes);

/// What this rank hands to MPI in one step.
struct ReductionTraffic {
  std::uint64_t reduce_bytes = 0;
  std::uint64_t gather_bytes = 0;         ///< of weights, with ZeRO
  std::uint64_t second_reduce_bytes = 0;  ///< in the second level of the sums
  std::uint64_t second_gather_bytes = 0;
  std::uint64_t messages = 0;  ///< calls of MPI that send; a collective of the library is one

  std::uint64_t bytes() const { return reduce_bytes + gather_bytes + second_reduce_bytes + second_gather_bytes; }
};

using TrafficByGroup = std::map<GroupKey, ReductionTraffic>;

/// How often in a step the units' gradients are summed, and (ZeRO-3) the weights of each are gathered.
struct UnitUses {
  std::vector<int> sums = {};  ///< by unit
  std::vector<int> gathers = {};
};

/// By group of the communicator (a group that joins another has no traffic of its own). Of a bucket of n elements over
/// p ranks of which we sum m, we send n - m elements to those who sum them, and m to each of the p - 1 others: sums
/// without ZeRO, weights with it. In two levels the m elements are a bucket of the second: the bytes are the same.
TrafficByGroup reduction_traffic(const ReductionPlan& plan, const GroupRanks& ranks, const ReducerOptions& options,
                                 Index gradient_bytes, Index weight_bytes, const UnitUses& uses = {},
                                 int most_direct_ranks = default_most_direct_ranks);

}  // namespace espalier
