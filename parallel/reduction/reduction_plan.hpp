// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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

/// A range of the flat arrays that is reduced together.
struct Bucket {
  Index offset = 0;
  Index size = 0;
  int first_segment = 0;  ///< the segments that it touches, last included
  int last_segment = 0;
  GroupKey group = {};  ///< of its communicator
  int unit = -1;        ///< index in ReductionPlan::units; -1: in none
  /// Rank r of the communicator sums (and, with ZeRO, keeps) elements [bounds[r], bounds[r + 1]) of the flat array.
  std::vector<Index> bounds;

  IndexRange range() const { return {offset, offset + size}; }
  IndexRange slice(int rank) const {
    return {bounds[static_cast<std::size_t>(rank)], bounds[static_cast<std::size_t>(rank) + 1]};
  }
  /// The slices of all ranks, in bytes from the start of the bucket.
  std::vector<ByteRange> byte_slices(Index element_bytes) const;
};

/// How gradients are cut into buckets. A bucket has the size of all gradients of its communicator / `buckets`, within
/// the limits. Small buckets start early, but each costs a message to every rank. Messages progress between kernels
/// only. So the gradients of two blocks or more must be in flight; else links are idle.
struct ReducerOptions {
  int buckets = 64;
  Index smallest_bucket_bytes = Index{1} << 20;
  Index bucket_bytes = Index{16} << 20;  ///< at most; wins over the smallest
  int buckets_in_flight = 16;            ///< of each communicator, at least one; each takes a receive buffer
  /// ZeRO stage. 1: optimizer state is sharded, weights are gathered after the update. 2: gradients of layers are, too.
  /// 3: weights of layers are, too, and are gathered for each use.
  int zero_stage = 0;
  /// Number of layers of each chunk: its positions 1 to n are layers, each a unit of stages 2 and 3. Embeddings, head
  /// and final norm are treated as in stage 1.
  std::vector<Index> layers_of_chunk = {};
  /// Lets a unit stand for several equal layers, to plan large models fast: how many for each unit; empty: one.
  std::vector<Index> layer_times = {};
  /// 16-bit type in which gradients are sent and sums are rounded; none: their own type.
  std::optional<ScalarType> wire = std::nullopt;

  /// Buckets in flight of a communicator that has so many.
  Index in_flight(Index num_buckets) const { return std::min<Index>(num_buckets, std::max(1, buckets_in_flight)); }
  Index times_of(std::size_t unit) const { return layer_times.empty() ? 1 : layer_times.at(unit); }
};

/// The options for sums over so many ranks. Slices have 256 KiB, which networks carry well, as far as buckets of 128
/// MiB allow. As many bytes are in flight as by default, but at least two buckets.
ReducerOptions options_for_ranks(ReducerOptions options, int ranks);

/// Which gradients are reduced over which ranks, in which order. Pure: a function of the layout and the sizes.
struct ReductionPlan {
  std::vector<Bucket> buckets;  ///< from the end of the flat arrays to their start; none for one rank
  /// Where the sum has a second level (GroupRank): our slice of each of `buckets`, in their order, cut among its ranks.
  /// With hybrid sharding they lie in no unit: replicate groups sum their shards after the last micro-batch.
  std::vector<Bucket> second_level_buckets;
  /// Those of `buckets` that lie in units, cut among all ranks over which ZeRO-3 shards them.
  std::vector<Bucket> gather_buckets;
  std::vector<IndexRange> owned;  ///< ascending: where this rank has the summed gradients
  std::vector<IndexRange> units;  ///< ascending: layers, in stages 2 and 3

  FlatSharding weight_sharding(int zero_stage, int buffers) const;
  FlatSharding gradient_sharding(int buffers) const { return {owned, units, units.empty() ? 0 : buffers}; }
};

/// The buckets of a plan, not yet cut into slices.
struct FlatBuckets {
  std::vector<Bucket> buckets;
  std::vector<IndexRange> units;
  std::vector<IndexRange> alone;  ///< from the end: over one rank, so not reduced
};
/// @pre there are segments
FlatBuckets flat_buckets(const std::vector<Segment>& segments, const FlatRows& rows, const GroupRanks& ranks,
                         const ReducerOptions& options, Index element_bytes);
Index flat_end_of(const std::vector<Segment>& segments);

/// Cuts the flat arrays into buckets, from their end. A bucket never mixes communicators. Buckets and slices begin at a
/// row of a parameter (its last dimension; a parameter of one dimension is cut anywhere). Padding belongs to the row
/// before it. A row longer than a bucket is a bucket.
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

/// How often in a step the gradients of each unit are summed, and (ZeRO-3) its weights are gathered.
struct UnitUses {
  std::vector<int> sums = {};  ///< by unit
  std::vector<int> gathers = {};
};

/// By group of the communicator (a group that uses another's has no traffic of its own). A bucket has n elements and p
/// ranks, and our slice has m elements. We send n - m elements in the reduce_scatter, and m to each of the p - 1 others
/// in the all_gather: of sums without ZeRO, of weights with it. With two levels the m elements are a bucket of the
/// second level.
TrafficByGroup reduction_traffic(const ReductionPlan& plan, const GroupRanks& ranks, const ReducerOptions& options,
                                 Index gradient_bytes, Index weight_bytes, const UnitUses& uses = {},
                                 int max_direct_ranks = default_max_direct_ranks);

}  // namespace espalier
