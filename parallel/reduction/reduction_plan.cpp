// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/reduction_plan.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace espalier {
namespace {

std::vector<Index> cut_into_slices(const Bucket& bucket, int parts, const FlatRows& rows) {
  std::vector<Index> bounds{bucket.offset};
  for (int part = 0; part < parts; ++part)
    bounds.push_back(rows.slice(bucket.range(), part, parts).end);
  return bounds;
}

// The slice of a rank of the first level as a bucket of the second.
Bucket cut_again(const Bucket& bucket, int rank, const GroupRank& ours, const FlatRows& rows) {
  const IndexRange slice = bucket.slice(rank);
  Bucket second{.offset = slice.begin,
                .size = slice.size(),
                .group = bucket.group,
                .unit = ours.is_hybrid_sharded ? -1 : bucket.unit,
                .bounds = {}};
  second.bounds = cut_into_slices(second, ours.second_size, rows);
  return second;
}

// Slice by slice of the first level the slices of the second.
Bucket cut_among_all(const Bucket& bucket, const GroupRank& ours, const FlatRows& rows) {
  Bucket all = bucket;
  all.bounds = {bucket.offset};
  for (int rank = 0; rank < ours.size; ++rank) {
    const Bucket second = cut_again(bucket, rank, ours, rows);
    all.bounds.insert(all.bounds.end(), second.bounds.begin() + 1, second.bounds.end());
  }
  return all;
}

void append(std::vector<IndexRange>& ranges, IndexRange range) {
  if (range.size() == 0)
    return;
  if (!ranges.empty() && ranges.back().end == range.begin)
    ranges.back().end = range.end;
  else
    ranges.push_back(range);
}

Index end_of(const std::vector<Segment>& segments, std::size_t s) {
  // The gap to the next segment is padding, zero everywhere: it goes with this one, so that buckets can join.
  return s + 1 < segments.size() ? segments[s + 1].offset : segments[s].offset + segments[s].size;
}

const GroupRank& rank_in(const GroupRanks& ranks, const GroupKey& key) {
  const auto found = ranks.find(key);
  ESPALIER_ASSERT(found != ranks.end(),
                  "espalier::plan_reduction: no group " + to_string(key) + " in reduction_groups");
  return found->second;
}

bool is_layer(const Segment& segment, const ReducerOptions& options) {
  const auto chunk = static_cast<std::size_t>(segment.chunk);
  return options.zero_stage >= 2 && chunk < options.layers_of_chunk.size() && segment.block >= 1 &&
         segment.block <= options.layers_of_chunk[chunk];
}

// The unit of each segment; -1: none. The segments of a layer are neighbours.
std::vector<int> units_of(const std::vector<Segment>& segments, const ReducerOptions& options) {
  std::vector<int> units;
  int last = -1;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const bool in_unit = is_layer(segments[s], options);
    const bool goes_on =
        s > 0 && segments[s - 1].chunk == segments[s].chunk && segments[s - 1].block == segments[s].block;
    last += in_unit && !goes_on ? 1 : 0;
    units.push_back(in_unit ? last : -1);
  }
  return units;
}

std::vector<IndexRange> unit_ranges(const std::vector<Segment>& segments, const std::vector<int>& units) {
  std::vector<IndexRange> ranges;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (units[s] == std::ssize(ranges))
      ranges.push_back({segments[s].offset, segments[s].offset});
    if (units[s] >= 0)
      ranges.back().end = end_of(segments, s);
  }
  return ranges;
}

// The most elements of a bucket of each communicator. All of its ranks sum the same, so they agree without messages.
std::map<GroupKey, Index> bucket_limits(const std::vector<Segment>& segments, const std::vector<int>& units,
                                        const GroupRanks& ranks, const ReducerOptions& options, Index element_bytes) {
  std::map<GroupKey, Index> limits;
  for (std::size_t s = 0; s < segments.size(); ++s)
    limits[rank_in(ranks, segments[s].group).communicator_key] +=
        segments[s].size * (units[s] >= 0 ? options.times_of(static_cast<std::size_t>(units[s])) : 1);
  const Index most = std::max<Index>(1, options.bucket_bytes / element_bytes);
  const Index least = std::clamp<Index>(options.smallest_bucket_bytes / element_bytes, 1, most);
  for (auto& [group, limit] : limits)
    limit = std::clamp(limit / std::max(1, options.buckets), least, most);
  return limits;
}

}  // namespace

Index flat_end_of(const std::vector<Segment>& segments) {
  return segments.empty() ? 0 : end_of(segments, segments.size() - 1);
}

std::vector<ByteRange> Bucket::byte_slices(Index element_bytes) const {
  std::vector<ByteRange> slices;
  for (std::size_t rank = 0; rank + 1 < bounds.size(); ++rank)
    slices.push_back({static_cast<std::size_t>((bounds[rank] - offset) * element_bytes),
                      static_cast<std::size_t>((bounds[rank + 1] - bounds[rank]) * element_bytes)});
  return slices;
}

ReducerOptions options_for_ranks(ReducerOptions options, int ranks) {
  constexpr Index slice_bytes = Index{256} << 10;
  constexpr Index max_bytes = Index{128} << 20;
  const Index in_flight = options.buckets_in_flight * options.bucket_bytes;
  const Index wanted = std::min(ranks * slice_bytes, max_bytes);
  options.smallest_bucket_bytes = std::max(options.smallest_bucket_bytes, wanted);
  options.bucket_bytes = std::max(options.bucket_bytes, wanted);
  options.buckets_in_flight = static_cast<int>(std::max<Index>(2, in_flight / options.bucket_bytes));
  return options;
}

FlatSharding ReductionPlan::weight_sharding(int zero_stage, int buffers) const {
  return zero_stage == 3 ? FlatSharding{owned, units, units.empty() ? 0 : buffers} : FlatSharding{};
}

FlatBuckets flat_buckets(const std::vector<Segment>& segments, const FlatRows& rows, const GroupRanks& ranks,
                         const ReducerOptions& options, Index element_bytes) {
  FlatBuckets plan;
  const std::vector<int> units = units_of(segments, options);
  const std::map<GroupKey, Index> limits = bucket_limits(segments, units, ranks, options, element_bytes);
  plan.units = unit_ranges(segments, units);
  for (int s = static_cast<int>(segments.size()) - 1; s >= 0; --s) {
    const Segment& segment = segments[static_cast<std::size_t>(s)];
    const GroupKey group = rank_in(ranks, segment.group).communicator_key;
    const Index limit = limits.at(group);
    Index end = end_of(segments, static_cast<std::size_t>(s));
    const int unit = units[static_cast<std::size_t>(s)];
    if (ranks.at(group).size == 1) {
      plan.alone.push_back({segment.offset, end});
      continue;
    }
    while (end > segment.offset) {
      const auto begin_with = [&](Index size) { return rows.at_or_after(std::max(segment.offset, end - size)); };
      bool joins = !plan.buckets.empty() && plan.buckets.back().offset == end && plan.buckets.back().group == group &&
                   plan.buckets.back().size < limit && plan.buckets.back().unit == unit;
      Index begin = joins ? begin_with(limit - plan.buckets.back().size) : end;
      joins = joins && begin < end;
      if (!joins) {
        plan.buckets.push_back(
            {.offset = end, .first_segment = s, .last_segment = s, .group = group, .unit = unit, .bounds = {}});
        begin = begin_with(limit);
        if (begin >= end)
          begin = rows.at_or_before(end - 1);  // one row is more than a bucket
      }
      Bucket& bucket = plan.buckets.back();
      bucket.offset = begin;
      bucket.size += end - begin;
      bucket.first_segment = s;
      end = begin;
    }
  }
  return plan;
}

ReductionPlan plan_reduction(const std::vector<Segment>& segments, const std::vector<Parameter>& parameters,
                             const GroupRanks& ranks, const ReducerOptions& options, Index element_bytes) {
  ReductionPlan plan;
  const Index flat_end = flat_end_of(segments);
  const FlatRows rows(parameters, flat_end);
  FlatBuckets uncut = flat_buckets(segments, rows, ranks, options, element_bytes);
  plan.buckets = std::move(uncut.buckets);
  plan.units = std::move(uncut.units);
  for (Bucket& bucket : plan.buckets)
    bucket.bounds = cut_into_slices(bucket, ranks.at(bucket.group).size, rows);
  for (const Bucket& bucket : plan.buckets)
    if (const GroupRank& ours = ranks.at(bucket.group); ours.second_size > 1)
      plan.second_level_buckets.push_back(cut_again(bucket, ours.rank, ours, rows));
  for (const Bucket& bucket : plan.buckets)
    if (const GroupRank& ours = ranks.at(bucket.group); bucket.unit >= 0)
      plan.gather_buckets.push_back(ours.is_sharded_over_both_levels() ? cut_among_all(bucket, ours, rows) : bucket);

  if (options.zero_stage == 0) {
    plan.owned = {{0, flat_end}};
    return plan;
  }
  std::vector<IndexRange> all(uncut.alone);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const GroupRank& ours = ranks.at(plan.buckets[b].group);
    all.push_back(ours.is_sharded_over_both_levels() ? plan.second_level_buckets[b].slice(ours.second_rank)
                                                     : plan.buckets[b].slice(ours.rank));
  }
  std::sort(all.begin(), all.end(), [](const IndexRange& a, const IndexRange& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  for (const IndexRange& range : all)
    append(plan.owned, range);
  return plan;
}

TrafficByGroup reduction_traffic(const ReductionPlan& plan, const GroupRanks& ranks, const ReducerOptions& options,
                                 Index gradient_bytes, Index weight_bytes, const UnitUses& uses, int max_direct_ranks) {
  const Index wire_bytes = options.wire ? static_cast<Index>(size_of(*options.wire)) : gradient_bytes;
  TrafficByGroup traffic;
  for (const auto& [key, ours] : ranks)
    traffic[key] = {};
  const auto all_to_all_messages = [&](const Bucket& bucket, int own, int size) {
    int receivers = 0;
    for (int rank = 0; rank < size; ++rank)
      receivers += rank != own && bucket.slice(rank).size() > 0 ? 1 : 0;
    return size <= max_direct_ranks ? receivers : 1;
  };
  const auto all_gather_messages = [&](const Bucket& bucket, int own, int size) {
    return size > max_direct_ranks ? 1 : bucket.slice(own).size() > 0 ? size - 1 : 0;
  };
  const auto count = [](ReductionTraffic& sum, std::uint64_t& bytes, int times, Index elements, Index each,
                        int messages) {
    bytes += static_cast<std::uint64_t>(times * elements * each);
    sum.messages += static_cast<std::uint64_t>(times * messages);
  };
  const bool is_sharded = options.zero_stage > 0;
  std::size_t next_gather_bucket = 0;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const Bucket& bucket = plan.buckets[b];
    const GroupRank& ours = ranks.at(bucket.group);
    ReductionTraffic& sum = traffic[bucket.group];
    const int num_sums = bucket.unit < 0 ? 1 : uses.sums.at(static_cast<std::size_t>(bucket.unit));
    const Index own = bucket.slice(ours.rank).size();
    count(sum, sum.reduce_bytes, num_sums, bucket.size - own, wire_bytes,
          all_to_all_messages(bucket, ours.rank, ours.size));
    const Bucket* const gathered = bucket.unit < 0 ? nullptr : &plan.gather_buckets[next_gather_bucket++];
    if (gathered != nullptr && options.zero_stage == 3) {
      const int size = static_cast<int>(gathered->bounds.size()) - 1;
      const int rank = ours.is_sharded_over_both_levels() ? ours.rank * ours.second_size + ours.second_rank : ours.rank;
      count(sum, sum.gather_bytes, uses.gathers.at(static_cast<std::size_t>(bucket.unit)),
            gathered->slice(rank).size() * (size - 1), weight_bytes, all_gather_messages(*gathered, rank, size));
    } else {
      count(sum, is_sharded ? sum.gather_bytes : sum.reduce_bytes, 1, own * (ours.size - 1),
            is_sharded ? weight_bytes : wire_bytes, all_gather_messages(bucket, ours.rank, ours.size));
    }
    if (plan.second_level_buckets.empty() || plan.second_level_buckets[b].size == 0)
      continue;
    const Bucket& second = plan.second_level_buckets[b];
    const Index slice = second.slice(ours.second_rank).size();
    const int messages = all_gather_messages(second, ours.second_rank, ours.second_size);
    count(sum, sum.second_reduce_bytes, ours.is_hybrid_sharded ? 1 : num_sums, second.size - slice, wire_bytes,
          all_to_all_messages(second, ours.second_rank, ours.second_size));
    if (ours.is_hybrid_sharded || !is_sharded)
      count(sum, sum.second_reduce_bytes, 1, slice * (ours.second_size - 1), wire_bytes, messages);
    else if (gathered == nullptr || options.zero_stage < 3)
      count(sum, sum.second_gather_bytes, 1, slice * (ours.second_size - 1), weight_bytes, messages);
  }
  return traffic;
}

}  // namespace espalier
