// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "core/error.hpp"
#include "parallel/collectives.hpp"
#include "parallel/process_mesh.hpp"
#include "tests/support/world.hpp"

namespace espalier {
namespace {

constexpr std::array<Axis, 3> all_axes{Axis::tp, Axis::dp, Axis::pp};
constexpr std::array<Axis, 3> reversed{Axis::pp, Axis::dp, Axis::tp};

TEST(MeshLayout, DefaultOrderIsTensorFastest) {
  const MeshLayout layout = make_layout(24, 2, 3, 4);
  for (int rank = 0; rank < 24; ++rank) {
    const PerAxis place = layout.coordinates(rank);
    EXPECT_EQ(rank, place[Axis::tp] + 2 * (place[Axis::dp] + 3 * place[Axis::pp]));
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
    for (const MeshLayout& fitting : layouts_by_distance(world_size, {{1, 1, 1}}))
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
}

TEST(ProcessMesh, CommunicatorsFollowTheLayout) {
  const Communicator& world = test::world();
  for (const MeshLayout& layout : layouts_by_distance(world.size(), {{1, 1, 1}})) {
    const ProcessMesh mesh(world, layout);
    for (const Axis axis : all_axes) {
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

}  // namespace
}  // namespace espalier
