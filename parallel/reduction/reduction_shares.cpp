// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/reduction_shares.hpp"

#include <algorithm>
#include <map>

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
    return static_cast<std::uint64_t>(std::min<Index>(buckets, std::max(1, options.buckets_in_flight)) * each);
  }
};

}  // namespace

ReductionShares::ReductionShares(const std::vector<Segment>& segments, const std::vector<Parameter>& parameters,
                                 const GroupRanks& ranks, const ReducerOptions& options, Index gradient_bytes)
    : options_(options),
      gradient_bytes_(gradient_bytes),
      flat_size_(flat_end_of(segments)),
      rows_(parameters, flat_size_),
      flat_(flat_buckets(segments, rows_, ranks, options, gradient_bytes)) {}

ReductionShare ReductionShares::of(const GroupRanks& ranks) const {
  ReductionShare share{.owned = flat_size_};  // less what others sum
  for (std::size_t unit = 0; unit < flat_.units.size(); ++unit) {
    share.owned += (options_.times_of(unit) - 1) * flat_.units[unit].size();
    share.owned_in_units += options_.times_of(unit) * flat_.units[unit].size();
  }
  std::map<GroupKey, InFlight> first, second;
  for (const Bucket& bucket : flat_.buckets) {
    const GroupRank& ours = ranks.at(bucket.group);
    const bool is_in_unit = bucket.unit >= 0;
    const Index times = is_in_unit ? options_.times_of(static_cast<std::size_t>(bucket.unit)) : 1;
    const IndexRange slice = rows_.slice(bucket.range(), ours.rank, ours.size);
    first[bucket.group].add(times, bucket.range(), slice);
    IndexRange kept = slice;
    if (ours.second_size > 1) {
      const IndexRange of_second = rows_.slice(slice, ours.second_rank, ours.second_size);
      second[bucket.group].add(times, slice, of_second);
      kept = ours.has_copies ? slice : of_second;  // copies of a shard are summed in it
    }
    share.owned -= times * (bucket.size - kept.size());
    share.owned_in_units -= is_in_unit ? times * (bucket.size - kept.size()) : 0;
  }
  for (const auto& [key, messages] : first)
    share.buffer_bytes += messages.buffer_bytes(ranks.at(key).size, options_, gradient_bytes_);
  for (const auto& [key, messages] : second)
    share.buffer_bytes += messages.buffer_bytes(ranks.at(key).second_size, options_, gradient_bytes_);
  return share;
}

}  // namespace espalier
