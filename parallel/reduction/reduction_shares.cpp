// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/reduction_shares.hpp"

#include <algorithm>

namespace espalier {
namespace {

// What is on its way in a communicator.
struct InFlight {
  Index buckets = 0;
  Index largest_bucket = 0;
  Index largest_slice = 0;

  void add(Index times, IndexRange bucket, IndexRange slice) {
    buckets += times;
    largest_bucket = std::max(largest_bucket, bucket.size());
    largest_slice = std::max(largest_slice, slice.size());
  }

  std::uint64_t buffer_bytes(int ranks, const ReducerOptions& options, Index gradient_bytes) const {
    const Index received = largest_slice * (ranks - 1);
    const Index each = options.wire ? (received + largest_bucket) * static_cast<Index>(size_of(*options.wire))
                                    : received * gradient_bytes;
    return static_cast<std::uint64_t>(options.in_flight(buckets) * each);
  }
};

}  // namespace

ReductionShares::ReductionShares(const std::vector<Segment>& segments, const std::vector<Parameter>& parameters,
                                 const GroupRanks& ranks, const ReducerOptions& options, Index gradient_bytes)
    : options_(options),
      gradient_bytes_(gradient_bytes),
      flat_size_(flat_end_of(segments)),
      rows_(parameters, flat_size_),
      flat_(flat_buckets(segments, rows_, ranks, options, gradient_bytes)) {
  std::ranges::stable_sort(flat_.buckets, {}, &Bucket::group);
}

ReductionShare ReductionShares::of(const GroupRanks& ranks) const {
  ReductionShare share{.owned = flat_size_};  // less what others sum
  for (std::size_t unit = 0; unit < flat_.units.size(); ++unit) {
    share.owned += (options_.times_of(unit) - 1) * flat_.units[unit].size();
    share.owned_in_units += options_.times_of(unit) * flat_.units[unit].size();
  }
  for (auto bucket = flat_.buckets.begin(); bucket != flat_.buckets.end();) {
    const GroupKey group = bucket->group;
    const GroupRank& ours = ranks.at(group);
    InFlight first, second;
    for (; bucket != flat_.buckets.end() && bucket->group == group; ++bucket) {
      const bool is_in_unit = bucket->unit >= 0;
      const Index times = is_in_unit ? options_.times_of(static_cast<std::size_t>(bucket->unit)) : 1;
      const IndexRange slice = rows_.slice(bucket->range(), ours.rank, ours.size);
      first.add(times, bucket->range(), slice);
      IndexRange kept = slice;
      if (ours.second_size > 1) {
        const IndexRange of_second = rows_.slice(slice, ours.second_rank, ours.second_size);
        second.add(times, slice, of_second);
        kept = ours.is_hybrid_sharded ? slice : of_second;
      }
      share.owned -= times * (bucket->size - kept.size());
      share.owned_in_units -= is_in_unit ? times * (bucket->size - kept.size()) : 0;
    }
    share.buffer_bytes += first.buffer_bytes(ours.size, options_, gradient_bytes_) +
                          second.buffer_bytes(ours.second_size, options_, gradient_bytes_);
  }
  return share;
}

}  // namespace espalier
