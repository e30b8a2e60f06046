// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "tests/parallel/segments.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

using test::over_dp, test::over_tied, test::over_tp_and_dp;

constexpr AxisOrder reversed{Axis::pp, Axis::dp, Axis::tp};

TEST(MeshLayout, DefaultOrderIsTensorFastest) {
  const MeshLayout layout = make_layout(24, 2, 3, 4);
  for (int rank = 0; rank < 24; ++rank) {
    const PerAxis coordinates = layout.coordinates(rank);
    EXPECT_EQ(rank, coordinates[Axis::tp] + 2 * (coordinates[Axis::dp] + 3 * coordinates[Axis::pp]));
  }
  EXPECT_EQ(layout.group(9, Axis::tp), (std::vector<int>{8, 9}));
  EXPECT_EQ(layout.group(9, Axis::dp), (std::vector<int>{7, 9, 11}));
  EXPECT_EQ(layout.group(9, Axis::pp), (std::vector<int>{3, 9, 15, 21}));
}

TEST(MeshLayout, OrderIsData) {
  const MeshLayout layout = make_layout(24, 2, 3, 4, reversed);
  EXPECT_EQ(layout.group(0, Axis::pp), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(layout.group(0, Axis::tp), (std::vector<int>{0, 12}));
}

// Every rank has one place, every axis cuts the world into equal groups, and a group is its members' alone.
TEST(MeshLayout, AllLayoutsUpTo4096Ranks) {
  for (const int world_size : {1, 2, 3, 4, 6, 7, 8, 12, 64, 96, 512, 4096})
    for (const MeshLayout& fitting : layouts_by_distance(world_size, PerAxis::degrees(1, 1, 1)))
      for (const auto& order : {fitting.order, reversed}) {
        const MeshLayout layout{.degrees = fitting.degrees, .order = order};
        ASSERT_EQ(layout.size(), world_size);
        for (int rank = 0; rank < world_size; ++rank)
          ASSERT_EQ(layout.rank_at(layout.coordinates(rank)), rank);
        for (const Axis axis : all_axes) {
          std::vector<int> members(static_cast<std::size_t>(world_size / layout.degree(axis)));
          for (int rank = 0; rank < world_size; ++rank) {
            ++members.at(static_cast<std::size_t>(layout.group_index(rank, axis)));
            const auto group = layout.group(rank, axis);
            ASSERT_EQ(group[static_cast<std::size_t>(layout.coordinates(rank)[axis])], rank);
            ASSERT_EQ(layout.group_index(group[0], axis), layout.group_index(rank, axis));
          }
          for (const int count : members)
            ASSERT_EQ(count, layout.degree(axis));
        }
      }
}

TEST(MeshLayout, DataTakesWhatIsLeft) {
  EXPECT_EQ(make_layout(16, 2, 0, 4).degree(Axis::dp), 2);
  EXPECT_EQ(make_layout(1, 1, 0, 1).degree(Axis::dp), 1);
}

TEST(MeshLayout, OrderFromText) {
  EXPECT_EQ(axis_order_from("tp,dp,pp"), data_first_order);
  EXPECT_EQ(axis_order_from("pp,dp,tp"), reversed);
  EXPECT_EQ(to_string(axis_order_from("dp,pp,tp")), "dp,pp,tp");
  for (const char* text : {"", "tp", "tp,dp", "tp,tp,pp", "tp,dp,pp,", "tp,dp,cp", "tp dp pp", "tp,dp,pp,tp", ",,"})
    EXPECT_THROW(axis_order_from(text), Error) << text;
}

// tensor 2 x data 2 x pipeline 3: rank = tp + 2 (dp + 2 pp)
TEST(MeshLayout, ReductionRanks) {
  const MeshLayout layout = make_layout(12, 2, 2, 3);
  using Ranks = std::vector<int>;
  EXPECT_EQ(layout.reduction_ranks(1, over_dp), (Ranks{1, 3}));
  EXPECT_EQ(layout.reduction_ranks(6, over_tp_and_dp), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(layout.reduction_ranks(3, over_tied), (Ranks{1, 3, 9, 11}));
  EXPECT_EQ(layout.reduction_ranks(9, over_tied), (Ranks{1, 3, 9, 11})) << "first stage first";
  EXPECT_EQ(layout.reduction_ranks(5, over_tied), (Ranks{5, 7})) << "no tied parameters between";
  EXPECT_EQ(make_layout(4, 1, 4, 1).reduction_ranks(2, over_tied), (Ranks{0, 1, 2, 3}));
  const GroupRanks ranks = layout.group_ranks(9);
  EXPECT_EQ(ranks.at(over_tied).rank, 2);
  EXPECT_EQ(ranks.at(over_tied).size, 4);
}

// Each group's ranks agree about who is in it and in which order, each exactly once, for any order of the axes.
TEST(MeshLayout, ReductionRanksUpTo4096) {
  for (const int world_size : {1, 2, 6, 8, 64, 96, 4096}) {
    auto layouts = layouts_by_distance(world_size, PerAxis::degrees(1, 1, 1));
    if (layouts.size() > 12)  // the corners and some between: a group's list is built once a rank
      for (std::size_t i = layouts.size(); i-- > 0;)
        if (i % 12 != 0)
          layouts.erase(layouts.begin() + static_cast<std::ptrdiff_t>(i));
    for (const MeshLayout& fitting : layouts)
      for (const auto& order : {fitting.order, reversed}) {
        const MeshLayout layout{.degrees = fitting.degrees, .order = order};
        const int dp = layout.degree(Axis::dp), tp = layout.degree(Axis::tp), last = layout.degree(Axis::pp) - 1;
        for (const GroupKey& group : reduction_groups)
          for (int rank = 0; rank<world_size; rank += world_size> 100 ? 13 : 1) {
            const auto ranks = layout.reduction_ranks(rank, group);
            const int stage = layout.coordinates(rank)[Axis::pp];
            const bool both_ends = group.tied && last > 0 && (stage == 0 || stage == last);
            const int wanted = group.axes.contains(Axis::tp) ? dp * tp : both_ends ? 2 * dp : dp;
            ASSERT_EQ(static_cast<int>(ranks.size()), wanted);
            ASSERT_EQ(std::count(ranks.begin(), ranks.end(), rank), 1);
            const GroupRank ours = layout.group_rank(rank, group);
            ASSERT_EQ(ranks[static_cast<std::size_t>(ours.rank)], rank);
            if (ours.rank == wanted - 1) {  // the last agrees with the first: enough at this price
              ASSERT_EQ(layout.reduction_ranks(ranks[0], group), ranks);
            }
            ASSERT_EQ(layout.reduction_ranks(rank, ours.communicator_key), ranks);
          }
      }
  }
}

// Against a walk along the replicas of every rank; 0 where any two nodes differ.
int replicas_by_walking(const MeshLayout& mesh, int ranks_per_node) {
  const int data = mesh.degree(Axis::dp);
  int replicas = 0;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const std::vector<int> group = mesh.group(rank, Axis::dp);
    const auto here = [&](int other) { return other / ranks_per_node == rank / ranks_per_node; };
    const auto on_node = static_cast<int>(std::count_if(group.begin(), group.end(), here));
    if ((replicas > 0 && on_node != replicas) || data % on_node != 0)
      return 0;
    replicas = on_node;
  }
  return replicas;
}

TEST(MeshLayout, ReplicasOfANode) {
  int num_regular = 0;
  for (const int world_size : {1, 6, 8, 12, 24, 36, 48})
    for (const MeshLayout& fitting : layouts_by_distance(world_size, PerAxis::degrees(1, 1, 1)))
      for (const AxisOrder& order : {fitting.order, pipeline_first_order, reversed})
        for (const int ranks_per_node : {1, 2, 3, 4, 6, 8, 12, 16, 48, 64}) {
          const MeshLayout mesh{.degrees = fitting.degrees, .order = order};
          const int wanted = replicas_by_walking(mesh, ranks_per_node);
          num_regular += wanted > 0 ? 1 : 0;
          ASSERT_EQ(replicas_of_a_node(mesh, ranks_per_node), wanted)
              << mesh.text() << ", " << to_string(order) << ", nodes of " << ranks_per_node;
        }
  EXPECT_GT(num_regular, 1000);
}

// Hybrid sharding: every rank of the sum is in one shard group, and its replicate group holds the same shard.
TEST(MeshLayout, ShardAndReplicateGroupsMakeUpTheSum) {
  for (const int world_size : {4, 6, 8, 24, 96})
    for (const MeshLayout& fitting : layouts_by_distance(world_size, PerAxis::degrees(1, 1, 1)))
      for (const auto& order : {fitting.order, reversed})
        for (int replicas = 1; replicas <= fitting.degree(Axis::dp); ++replicas) {
          if (fitting.degree(Axis::dp) % replicas != 0)
            continue;
          const MeshLayout layout{.degrees = fitting.degrees, .order = order, .shard_replicas = replicas};
          const MeshLayout levels{.degrees = fitting.degrees, .order = order, .first_level_replicas = replicas};
          for (const GroupKey& group : reduction_groups)
            for (int rank = 0; rank < world_size; ++rank) {
              ASSERT_EQ(levels.first_level_ranks(rank, group), layout.first_level_ranks(rank, group));
              ASSERT_EQ(levels.second_level_ranks(rank, group), layout.second_level_ranks(rank, group));
              const GroupRank ours = layout.group_rank(rank, group);
              const auto shards = layout.first_level_ranks(rank, group);
              const auto replicates = layout.second_level_ranks(rank, group);
              ASSERT_EQ(static_cast<int>(shards.size()), ours.size);
              ASSERT_EQ(static_cast<int>(replicates.size()), ours.second_size);
              ASSERT_EQ(shards[static_cast<std::size_t>(ours.rank)], rank);
              ASSERT_EQ(replicates[static_cast<std::size_t>(ours.second_rank)], rank);
              std::vector<int> all;
              for (const int other : replicates) {
                ASSERT_EQ(layout.group_rank(other, group).rank, ours.rank) << "the same shard";
                const auto theirs = layout.first_level_ranks(other, group);
                all.insert(all.end(), theirs.begin(), theirs.end());
              }
              std::sort(all.begin(), all.end());
              auto whole = layout.reduction_ranks(rank, group);
              std::sort(whole.begin(), whole.end());
              ASSERT_EQ(all, whole) << layout.text() << ", shard groups of " << replicas << ", " << to_string(group);
              for (const int other : shards)
                ASSERT_EQ(layout.coordinates(other)[Axis::dp] / replicas,
                          layout.coordinates(rank)[Axis::dp] / replicas);
            }
        }
}

// A divisor near the root, unless a node has several replicas; none of a prime.
TEST(MeshLayout, SumsOverManyReplicasHaveTwoLevels) {
  const auto first = [](int data, int ranks_per_node, int most) {
    return first_level_replicas(make_layout(2 * data, 2, data, 1), ranks_per_node, most);
  };
  EXPECT_EQ(first(64, 0, 64), 0);
  EXPECT_EQ(first(64, 0, 63), 8);
  EXPECT_EQ(first(512, 0, 64), 16);
  EXPECT_EQ(first(512, 16, 64), 8) << "8 replicas of 2 ranks lie on a node";
  EXPECT_EQ(first(512, 2, 64), 16) << "each is alone on its node";
  EXPECT_EQ(first(512, 6, 64), 16) << "nodes differ";
  EXPECT_EQ(first(96, 0, 64), 8);
  EXPECT_EQ(first(101, 0, 64), 0);
  const MeshLayout experts{.degrees = PerAxis::degrees(1, 16, 1).with(Axis::ep, 8)};
  EXPECT_EQ(first_level_replicas(experts, 0, 64), 4) << "128 ranks see other tokens";
}

std::string refusal(int world_size, int tensor, int data, int pipeline) {
  try {
    make_layout(world_size, tensor, data, pipeline);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(MeshLayout, RefusalsNameAllFactorsAndTheNearestLayouts) {
  const std::string text = refusal(8, 2, 3, 1);
  EXPECT_NE(text.find("tensor 2 x data 3 x pipeline 1 = 6, but there are 8 ranks"), std::string::npos) << text;
  EXPECT_NE(text.find("nearest layouts that fit: tensor 2 x data 4 x pipeline 1"), std::string::npos) << text;
  EXPECT_NE(refusal(8, 3, 0, 1).find("does not divide the 8 ranks"), std::string::npos);
  EXPECT_NE(refusal(8, 0, 1, 1).find("must be positive"), std::string::npos);
  EXPECT_NE(refusal(8, 1, -1, 1).find("must be positive"), std::string::npos);
  EXPECT_NE(refusal(2, 65536, 1, 65536).find("4294967296"), std::string::npos);
  EXPECT_THROW(make_layout(8, 2, 2, 2, {Axis::tp, Axis::tp, Axis::pp}), Error);
  try {
    refuse_layout(8, PerAxis::degrees(2, 1, 1).with(Axis::cp, 2), "too few");
  } catch (const Error& error) {
    EXPECT_EQ(error.report().got, "tensor = 2, context = 2, data = 1, pipeline = 1 on 8 ranks");
    EXPECT_EQ(error.report().wanted, "tensor x context x data x pipeline = 8");
  }
}

TEST(ProcessMesh, ReductionCommunicatorsFollowTheLayout) {
  const Communicator& world = test::world();
  for (const MeshLayout& fitting : layouts_by_distance(world.size(), PerAxis::degrees(2, 2, 2)))
    for (const auto& order : {fitting.order, reversed}) {
      if (world.size() > 4 && fitting.degrees != PerAxis::degrees(2, world.size() / 4, 2))
        continue;  // eight ranks on two cores take long to make communicators
      const MeshLayout layout{.degrees = fitting.degrees, .order = order};
      const ProcessMesh mesh(world, layout);
      const GroupRanks found = mesh.reductions().ranks();
      for (const GroupKey& group : reduction_groups) {
        const Communicator& communicator = mesh.reduction(group);
        const auto ranks = layout.reduction_ranks(world.rank(), group);
        ASSERT_EQ(communicator.size(), static_cast<int>(ranks.size()));
        for (int rank = 0; rank < communicator.size(); ++rank)
          EXPECT_EQ(communicator.world_rank(rank), ranks[static_cast<std::size_t>(rank)]);
        const GroupRank wanted = layout.group_rank(world.rank(), group);
        EXPECT_EQ(found.at(group).rank, wanted.rank);
        EXPECT_EQ(found.at(group).communicator_key, wanted.communicator_key)
            << "the mesh and the pure function agree on what is joined";
        EXPECT_EQ(communicator.state() == mesh.dp().state(), wanted.communicator_key == over_dp);
      }
    }
}

TEST(ProcessMesh, CommunicatorsFollowTheLayout) {
  const Communicator& world = test::world();
  for (const MeshLayout& layout : layouts_by_distance(world.size(), PerAxis::degrees(1, 1, 1))) {
    const ProcessMesh mesh(world, layout);
    for (const Axis axis : trained_axes) {
      const Communicator& along = mesh.along(axis);
      const auto group = layout.group(world.rank(), axis);
      ASSERT_EQ(along.size(), static_cast<int>(group.size()));
      EXPECT_EQ(along.name(), to_string(axis));
      EXPECT_EQ(along.rank(), mesh.coordinates()[axis]);
      std::int32_t sum = 0;
      for (int rank = 0; rank < along.size(); ++rank) {
        EXPECT_EQ(along.world_rank(rank), group[static_cast<std::size_t>(rank)]);
        sum += along.world_rank(rank);
      }
      EXPECT_EQ(all_reduce(along, static_cast<std::int32_t>(world.rank())), sum);
    }
  }
  EXPECT_THROW(ProcessMesh(world, make_layout(world.size() + 1, 1, 0, 1)), Error);
}

TEST(ProcessMesh, ContextAndExpertRanksHaveCommunicators) {
  const Communicator& world = test::world();
  for (const Axis axis : {Axis::cp, Axis::ep}) {
    const int degree = world.size() > 2 ? 2 : world.size();
    const MeshLayout layout{.degrees = PerAxis::degrees(1, world.size() / degree, 1).with(axis, degree)};
    const ProcessMesh mesh(world, layout);
    if (degree > 1) {
      EXPECT_EQ(mesh.along(axis).size(), degree);
      EXPECT_EQ(mesh.along(axis).name(), to_string(axis));
    }
    const GroupRanks found = mesh.reductions().ranks();
    for (const GroupKey& group : layout.groups()) {
      const auto ranks = layout.reduction_ranks(world.rank(), group);
      const Communicator& communicator = mesh.reduction(group);
      ASSERT_EQ(communicator.size(), static_cast<int>(ranks.size())) << to_string(group);
      for (int rank = 0; rank < communicator.size(); ++rank)
        EXPECT_EQ(communicator.world_rank(rank), ranks[static_cast<std::size_t>(rank)]) << to_string(group);
      EXPECT_EQ(found.at(group).communicator_key, layout.group_rank(world.rank(), group).communicator_key);
    }
  }
}

}  // namespace
}  // namespace espalier
