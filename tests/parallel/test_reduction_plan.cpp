// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <vector>

#include "parallel/mesh/process_mesh.hpp"
#include "parallel/reduction/reduction_shares.hpp"
#include "tests/parallel/segments.hpp"

namespace espalier {
namespace {

using namespace test;

GroupRanks ranks_of(int rank, int size) {
  GroupRanks ranks;
  for (const GroupKey& key : reduction_groups)
    ranks[key] = {.rank = rank, .size = size, .communicator_key = over_dp};
  return ranks;
}

std::vector<Bucket> buckets_of(const std::vector<Segment>& segments, Index elements) {
  return plan_reduction(segments, {}, ranks_of(0, 2), {.buckets = 1, .bucket_bytes = elements}, 1).buckets;
}

// One element, fewer than ranks, odd, longer than a bucket, and some that share one.
const std::vector<Index> uneven_sizes{1, 2, 5000, 33, 700, 1, 1, 999};

TEST(ReductionPlan, BucketsCoverAllSegmentsOnceFromTheEnd) {
  const auto segments = segments_of(uneven_sizes);
  for (const Index elements : {Index{1}, Index{7}, Index{300}, Index{5000}, Index{1} << 40}) {
    Index end = total(segments);
    for (const Bucket& bucket : buckets_of(segments, elements)) {
      EXPECT_EQ(bucket.offset + bucket.size, end);
      EXPECT_LE(bucket.size, elements);
      EXPECT_GE(bucket.size, 1);
      const Segment& first = segments[static_cast<std::size_t>(bucket.first_segment)];
      const Segment& last = segments[static_cast<std::size_t>(bucket.last_segment)];
      EXPECT_TRUE(bucket.offset >= first.offset && bucket.offset < first.offset + first.size);
      EXPECT_TRUE(end > last.offset && end <= last.offset + last.size);
      end = bucket.offset;
    }
    EXPECT_EQ(end, 0);
  }
}

TEST(ReductionPlan, BucketsNeverMixCommunicators) {
  auto segments = segments_of({10, 10, 10, 10});
  segments[1].group = segments[2].group = over_tied;
  EXPECT_EQ(buckets_of(segments, 1000).size(), 1u) << "groups over the same ranks are reduced together";
  auto ranks = ranks_of(0, 2);
  ranks[over_tied].communicator_key = over_tied;
  const auto buckets = plan_reduction(segments, {}, ranks, {.bucket_bytes = 1000}, 1).buckets;
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[1].first_segment, 1);
  EXPECT_EQ(buckets[1].last_segment, 2);
  EXPECT_EQ(buckets[1].size, 20);
  EXPECT_EQ(buckets[1].group, over_tied);
}

TEST(ReductionPlan, BucketsAreAFractionWithinLimits) {
  constexpr Index mib = Index{1} << 20;
  const auto sizes = [](std::vector<Segment> segments, const GroupKey& tied_communicator_key) {
    auto ranks = ranks_of(0, 2);
    ranks[over_tied].communicator_key = tied_communicator_key;
    std::map<GroupKey, std::vector<Index>> by_group;
    for (const Bucket& bucket : plan_reduction(segments, {}, ranks, {}, 1).buckets)
      by_group[bucket.group].push_back(bucket.size);
    return by_group;
  };
  const auto all_of = [&](Index total) { return sizes(segments_of({total}), over_dp)[over_dp]; };
  EXPECT_EQ(all_of(640 * mib), std::vector<Index>(64, 10 * mib));
  EXPECT_EQ(all_of(8 * mib), std::vector<Index>(8, mib)) << "not smaller";
  EXPECT_EQ(all_of(1600 * mib), std::vector<Index>(100, 16 * mib)) << "not larger";

  // The ranks that share the token embedding hold unlike layers besides: the table's buckets must not depend on those.
  for (const Index others : {64 * mib, 640 * mib}) {
    auto segments = segments_of({128 * mib, others});
    segments[0].group = over_tied;
    EXPECT_EQ(sizes(segments, over_tied)[over_tied], std::vector<Index>(64, 2 * mib));
  }
}

TEST(ReductionPlan, BeyondTwoToThe31) {
  const auto buckets = buckets_of(segments_of({Index{3} << 31, 5, Index{1} << 33}), Index{1} << 30);
  EXPECT_EQ(buckets.size(), 15u);  // 8 + 6 of 2^30 elements, and 5
  EXPECT_EQ(buckets.front().offset, (Index{3} << 31) + 5 + (Index{7} << 30));
  EXPECT_EQ(buckets.back().offset, 0);
}

// Every place where the flat arrays may be cut.
std::set<Index> allowed_cuts(const ParameterStore<double>& parameters) {
  std::set<Index> cuts{parameters.flat_size()};
  for (const Parameter& parameter : parameters.parameters()) {
    const Index row = parameter.local_shape.size() == 1 ? 1 : parameter.local_shape.back();
    for (Index begin = 0; begin < parameter.size; begin += row)
      cuts.insert(parameter.offset + begin);
  }
  return cuts;
}

TEST(ReductionPlan, CutsAtRowsOnly) {
  const auto parameters = odd_parameters<double>();
  const auto cuts = allowed_cuts(parameters);
  for (const int size : {2, 3, 4, 8, 64})
    for (const Index elements : {1, 20, 64, 299, 1000, 100000}) {
      const auto plan = plan_reduction(parameters.segments(), parameters.parameters(), ranks_of(0, size),
                                       {.bucket_bytes = elements * 8}, 8);
      Index end = parameters.flat_size();
      for (const Bucket& bucket : plan.buckets) {
        EXPECT_EQ(bucket.offset + bucket.size, end) << "no element is left out";
        EXPECT_TRUE(cuts.contains(bucket.offset)) << bucket.offset;
        EXPECT_LE(bucket.size, std::max<Index>(elements, 300 + 256)) << "one long row, and padding, at most";
        ASSERT_EQ(bucket.bounds.size(), static_cast<std::size_t>(size) + 1);
        EXPECT_EQ(bucket.bounds.front(), bucket.offset);
        EXPECT_EQ(bucket.bounds.back(), end);
        EXPECT_TRUE(std::is_sorted(bucket.bounds.begin(), bucket.bounds.end()));
        for (const Index bound : bucket.bounds)
          EXPECT_TRUE(cuts.contains(bound)) << bound;
        end = bucket.offset;
      }
      EXPECT_EQ(end, 0);
    }
}

TEST(ReductionPlan, SlicesAreOfLikeSize) {
  const auto segments = segments_of({Index{1} << 20});
  const auto plan = plan_reduction(segments, {}, ranks_of(0, 7), {.bucket_bytes = Index{1} << 40}, 1);
  for (int rank = 0; rank < 7; ++rank)
    EXPECT_NEAR(static_cast<double>(plan.buckets[0].slice(rank).size()), (1 << 20) / 7.0, 32);
}

/// Those, and each with sums in two levels.
std::vector<MeshLayout> with_levels(std::vector<MeshLayout> layouts) {
  for (std::size_t i = 0, size = layouts.size(); i < size; ++i) {
    MeshLayout two_levels = layouts[i];
    two_levels.first_level_replicas = first_level_replicas(two_levels, 0, 1);
    if (two_levels.first_level_replicas > 0)
      layouts.push_back(two_levels);
  }
  return layouts;
}

// With ZeRO-1 each element is owned once by the ranks that sum it together: over all layouts, every rank of a group.
TEST(ReductionPlan, OwnedRangesPartitionEachGroup) {
  constexpr Index bucket_bytes = 900 * 8;
  for (const int world_size : {1, 2, 4, 8, 12})
    for (const MeshLayout& layout : with_levels(layouts_by_distance(world_size, PerAxis::degrees(1, 1, 1)))) {
      // By group, by the first rank of its ranks: how often each element is owned, over all ranks of the group.
      std::map<GroupKey, std::map<int, std::vector<int>>> owners;
      for (int rank = 0; rank < world_size; ++rank) {
        const int stage = layout.coordinates(rank)[Axis::pp];
        const bool has_tied = stage == 0 || stage == layout.degree(Axis::pp) - 1;
        const auto parameters = odd_parameters<double>(has_tied);
        const auto ranks = layout.group_ranks(rank);
        const auto plan = plan_reduction(parameters.segments(), parameters.parameters(), ranks,
                                         {.bucket_bytes = bucket_bytes, .zero_stage = 1}, 8);
        EXPECT_TRUE(std::is_sorted(plan.owned.begin(), plan.owned.end(),
                                   [](const IndexRange& a, const IndexRange& b) { return a.end < b.begin; }));
        for (std::size_t s = 0; s < parameters.segments().size(); ++s) {
          const Segment& segment = parameters.segments()[s];
          auto& counts = owners[segment.group][layout.reduction_ranks(rank, segment.group)[0]];
          const Index before = segment.offset;  // elements of a group are told apart by their flat index
          counts.resize(static_cast<std::size_t>(parameters.flat_size()));
          for (const IndexRange& range : plan.owned)
            for (Index i = std::max(before, range.begin); i < std::min(range.end, before + segment.size); ++i)
              ++counts[static_cast<std::size_t>(i)];
        }
      }
      const auto parameters = odd_parameters<double>();
      for (const Segment& segment : parameters.segments())
        for (const auto& [first, counts] : owners[segment.group]) {
          if (counts.size() < static_cast<std::size_t>(parameters.flat_size()))
            continue;  // a stage between, without tied parameters
          for (Index i = segment.offset; i < segment.offset + segment.size; ++i)
            ASSERT_EQ(counts[static_cast<std::size_t>(i)], 1)
                << layout.text() << ", " << to_string(segment.group) << ", element " << i;
        }
    }
}

// Without the slices of others: of each rank what its own plan says, in one level, in two, and with hybrid sharding.
TEST(ReductionPlan, SharesAreThoseOfEachPlan) {
  const std::vector<Segment> segments = segments_of({70 * 33, 5, 9 * 1000});
  std::vector<Parameter> parameters;  // rows that no number of ranks divides
  for (const auto& [segment, row] : {std::pair(0, Index{33}), {1, Index{1}}, {2, Index{1000}}}) {
    Parameter parameter;
    parameter.size = segments[static_cast<std::size_t>(segment)].size;
    parameter.local_shape = {parameter.size / row, row};
    parameter.offset = segments[static_cast<std::size_t>(segment)].offset;
    parameters.push_back(parameter);
  }
  const ReducerOptions options{.bucket_bytes = 4 * 900, .zero_stage = 1};
  std::set<Index> shares_of_ranks;
  for (const auto& [shard_replicas, first_level_replicas] : {std::pair(0, 0), {0, 3}, {4, 0}}) {
    const MeshLayout mesh{.degrees = PerAxis::degrees(1, 12, 1),
                          .shard_replicas = shard_replicas,
                          .first_level_replicas = first_level_replicas};
    const ReductionShares shares(segments, parameters, mesh.group_ranks(0), options, 4);
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const GroupRanks ranks = mesh.group_ranks(rank);
      const ReductionPlan plan = plan_reduction(segments, parameters, ranks, options, 4);
      Index owned = 0;
      for (const IndexRange& range : plan.owned)
        owned += range.size();
      EXPECT_EQ(shares.of(ranks).owned, owned) << mesh.text() << ", rank " << rank;
      shares_of_ranks.insert(owned);
    }
  }
  EXPECT_GT(shares_of_ranks.size(), 3u) << "ranks that own alike show nothing";
}

TEST(ReductionPlan, WithoutZeroAllIsOwned) {
  const auto parameters = odd_parameters<double>();
  const auto plan = plan_reduction(parameters.segments(), parameters.parameters(), ranks_of(1, 4), {}, 8);
  EXPECT_EQ(plan.owned, (std::vector<IndexRange>{{0, parameters.flat_size()}}));
}

// n elements over p ranks, all of equal slices: 2 n (p - 1) / p, of which ZeRO-1 sends one half as weights.
TEST(ReductionPlan, TrafficOfEvenSlices) {
  const auto segments = segments_of({4096});
  for (const int size : {1, 2, 4, 8}) {
    const auto ranks = ranks_of(0, size);
    const auto bytes = [&](int zero_stage) {
      const ReducerOptions options{.zero_stage = zero_stage};
      return reduction_traffic(plan_reduction(segments, {}, ranks, options, 4), ranks, options, 4, 2).at(over_dp);
    };
    const auto half = static_cast<std::uint64_t>(4096 * (size - 1) / size);
    EXPECT_EQ(bytes(0).reduce_bytes, 2 * half * 4);
    EXPECT_EQ(bytes(0).gather_bytes, 0u);
    EXPECT_EQ(bytes(1).reduce_bytes, half * 4);
    EXPECT_EQ(bytes(1).gather_bytes, half * 2);
  }
}

MeshLayout mesh_of(int replicas) { return make_layout(replicas, 1, replicas, 1); }

// The table of docs/performance.md: 124 Mi fp32 gradients, ZeRO-1.
TEST(ReductionPlan, TrafficFrom8To4096Ranks) {
  const auto segments = segments_of({Index{124} << 20});
  for (int size = 8; size <= 4096; size *= 2) {
    const ReducerOptions options = options_for_ranks({.zero_stage = 1}, size);
    const auto ranks = ranks_of(size / 2, size);
    const auto plan = plan_reduction(segments, {}, ranks, options, 4);
    const auto traffic = [&](int most) { return reduction_traffic(plan, ranks, options, 4, 4, {}, most).at(over_dp); };
    const ReductionTraffic library = traffic(1);
    const ReductionTraffic direct = traffic(size);
    EXPECT_EQ(library.reduce_bytes + library.gather_bytes, direct.reduce_bytes + direct.gather_bytes);
    EXPECT_NEAR(static_cast<double>(direct.reduce_bytes), 4.0 * (124 << 20) * (size - 1) / size, 1e5);
    if (size <= 512) {
      EXPECT_GE(plan.buckets.front().slice(size / 2).size() * 4, 256 << 10) << size << " ranks";
    }
    constexpr std::uint64_t in_flight = 256 << 20;  // as with the buckets of few ranks
    EXPECT_LE(ReductionShares(segments, {}, ranks, options, 4).of(ranks).buffer_bytes, in_flight + (size << 10))
        << size << " ranks";
    EXPECT_EQ(library.messages, 2 * plan.buckets.size());
    EXPECT_EQ(direct.messages, 2 * plan.buckets.size() * static_cast<std::size_t>(size - 1));
    // In two levels: the same bytes and slices, and little more memory.
    const MeshLayout mesh{.degrees = PerAxis::degrees(1, size, 1),
                          .first_level_replicas = first_level_replicas(mesh_of(size), 0, 1)};
    const GroupRanks in_levels = mesh.group_ranks(size / 2);
    const auto two = plan_reduction(segments, {}, in_levels, options, 4);
    const ReductionTraffic levels = reduction_traffic(two, in_levels, options, 4, 4, {}, size).at(over_dp);
    EXPECT_NEAR(static_cast<double>(levels.bytes()), static_cast<double>(direct.bytes()), 2e5);
    EXPECT_NEAR(static_cast<double>(two.owned.front().size()), static_cast<double>(plan.owned.front().size()), 64);
    EXPECT_LE(ReductionShares(segments, {}, in_levels, options, 4).of(in_levels).buffer_bytes, 1.6 * in_flight)
        << size << " ranks";
    const auto peers = static_cast<std::size_t>(mesh.first_level_replicas - 1 + size / mesh.first_level_replicas - 1);
    EXPECT_EQ(levels.messages, 2 * two.buckets.size() * peers);
    std::printf(
        "%4d ranks: %.0f MB, slices of %.0f KiB, %zu messages directly, %zu in levels of %d and %d, %zu calls of "
        "the library\n",
        size, static_cast<double>(library.bytes()) / 1e6,
        static_cast<double>(plan.buckets.front().slice(size / 2).size()) * 4 / 1024,
        static_cast<std::size_t>(direct.messages), static_cast<std::size_t>(levels.messages), mesh.first_level_replicas,
        size / mesh.first_level_replicas, static_cast<std::size_t>(library.messages));
  }
}

}  // namespace
}  // namespace espalier
