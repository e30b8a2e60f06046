// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The mesh with all five axes: over which ranks gradients are summed, against a walk through the world, and arithmetic
// for worlds of 16,384 ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "core/parameter_spec.hpp"
#include "parallel/mesh/mesh_layout.hpp"

namespace espalier {
namespace {

constexpr AxisOrder reversed_order{Axis::pp, Axis::dp, Axis::tp};

/// All layouts of a world whose degrees multiply to it.
std::vector<MeshLayout> all_layouts(int world_size, const AxisOrder& order) {
  std::vector<MeshLayout> layouts{{.order = order}};
  for (const Axis axis : all_axes) {
    std::vector<MeshLayout> more;
    for (const MeshLayout& layout : layouts)
      for (int degree = 1; degree <= world_size / layout.size(); ++degree)
        if (world_size / layout.size() % degree == 0) {
          more.push_back(layout);
          more.back().degrees[axis] = degree;
        }
    layouts = std::move(more);
  }
  std::erase_if(layouts, [&](const MeshLayout& layout) { return layout.size() != world_size; });
  return layouts;
}

/// A kind of parameter: how it is cut, and what contributes to its gradient on each rank.
struct ParameterKind {
  const char* name;
  bool cut_over_tp = false;
  bool cut_over_ep = false;  // experts: the tokens of all ep ranks come to those who hold them
  bool other_rows = false;   // each tp rank applies it to rows of its own
  bool tied = false;         // held by the first and the last stage
};

constexpr ParameterKind kinds[] = {
    {.name = "matrix", .cut_over_tp = true},
    {.name = "norm"},
    {.name = "norm of local rows", .other_rows = true},
    {.name = "experts", .cut_over_ep = true},
    {.name = "token embedding", .cut_over_tp = true, .tied = true},
};

ParameterSpec spec_of(const ParameterKind& kind, const MeshLayout& layout, const PerAxis& coordinates) {
  ParameterSpec spec{.name = kind.name, .shape = {64, 64}, .tied = kind.tied};
  for (const Axis axis : {Axis::tp, Axis::ep})
    if (axis == Axis::tp ? kind.cut_over_tp : kind.cut_over_ep)
      spec.shard = {.dim = 0, .part = coordinates[axis], .parts = layout.degree(axis), .axis = axis};
  if (kind.other_rows)
    spec.partial = {Axis::tp};
  return spec;
}

using Elements = std::tuple<int, int, int>;                // part over tp, part over ep, stage
using Contribution = std::tuple<int, int, int, int, int>;  // the coordinates whose tokens, rows or use differ

Elements elements_of(const ParameterKind& kind, const MeshLayout& layout, const PerAxis& coordinates) {
  const int last = layout.degree(Axis::pp) - 1;
  const bool is_end = coordinates[Axis::pp] == 0 || coordinates[Axis::pp] == last;
  return {kind.cut_over_tp ? coordinates[Axis::tp] : 0, kind.cut_over_ep ? coordinates[Axis::ep] : 0,
          kind.tied && is_end ? 0 : coordinates[Axis::pp]};
}

Contribution contribution_of(const ParameterKind& kind, const PerAxis& coordinates) {
  return {coordinates[Axis::cp], kind.cut_over_ep ? 0 : coordinates[Axis::ep], coordinates[Axis::dp],
          kind.other_rows ? coordinates[Axis::tp] : 0, kind.tied ? coordinates[Axis::pp] : 0};
}

// A group has ranks of the same elements, and of each contribution to them one rank; ranks that it leaves out make a
// group of their own. That is all that a sum needs.
TEST(MeshAxes, GradientsAreSummedOverAllContributionsOnce) {
  for (const int world_size : {1, 2, 4, 6, 8, 12, 16, 24, 32})
    for (const AxisOrder& order : {data_first_order, pipeline_first_order, reversed_order})
      for (const MeshLayout& layout : all_layouts(world_size, order))
        for (const ParameterKind& kind : kinds) {
          std::map<Elements, std::set<Contribution>> wanted;
          for (int rank = 0; rank < world_size; ++rank) {
            const PerAxis coordinates = layout.coordinates(rank);
            wanted[elements_of(kind, layout, coordinates)].insert(contribution_of(kind, coordinates));
          }
          for (int rank = 0; rank < world_size; ++rank) {
            const PerAxis ours = layout.coordinates(rank);
            const GroupKey key = spec_of(kind, layout, ours).group();
            const std::vector<int> ranks = layout.reduction_ranks(rank, key);
            std::set<Contribution> summed;
            for (const int other : ranks) {
              const PerAxis theirs = layout.coordinates(other);
              ASSERT_EQ(elements_of(kind, layout, theirs), elements_of(kind, layout, ours));
              ASSERT_TRUE(summed.insert(contribution_of(kind, theirs)).second) << "twice";
              if (other == ranks.front()) {
                ASSERT_EQ(layout.reduction_ranks(other, key), ranks) << "all members see the same group";
              }
            }
            ASSERT_EQ(summed, wanted[elements_of(kind, layout, ours)])
                << kind.name << " on rank " << rank << " of " << layout.text();
            const GroupRank place = layout.group_rank(rank, key);
            ASSERT_EQ(place.size, static_cast<int>(ranks.size()));
            ASSERT_EQ(ranks[static_cast<std::size_t>(place.rank)], rank);
            const GroupRanks known = layout.group_ranks(rank);
            ASSERT_TRUE(known.contains(key)) << kind.name << " of " << layout.text();
            ASSERT_TRUE(known.contains(place.communicator_key));
            ASSERT_EQ(layout.reduction_ranks(rank, place.communicator_key), ranks);
          }
        }
}

std::vector<MeshLayout> large_layouts() {
  const PerAxis degrees[] = {
      PerAxis::degrees(8, 128, 16),
      PerAxis::degrees(8, 32, 16).with(Axis::cp, 4),
      PerAxis::degrees(4, 16, 4).with(Axis::ep, 64),
      PerAxis::degrees(8, 16, 8).with(Axis::cp, 2).with(Axis::ep, 8),
      PerAxis::degrees(1, 2, 2).with(Axis::cp, 64).with(Axis::ep, 64),
      PerAxis::degrees(1, 1, 1).with(Axis::ep, 16384),
  };
  std::vector<MeshLayout> layouts;
  for (const PerAxis& each : degrees)
    for (const AxisOrder& order : {data_first_order, pipeline_first_order, reversed_order})
      layouts.push_back({.degrees = each, .order = order});
  return layouts;
}

TEST(MeshAxes, Worlds16384RanksHaveOnePlaceForEach) {
  for (const MeshLayout& layout : large_layouts()) {
    ASSERT_EQ(layout.size(), 16384) << layout.text();
    for (int rank = 0; rank < layout.size(); ++rank) {
      const PerAxis coordinates = layout.coordinates(rank);
      ASSERT_EQ(layout.rank_at(coordinates), rank);
      for (const Axis axis : all_axes)
        ASSERT_LT(coordinates[axis], layout.degree(axis));
    }
    for (const Axis axis : all_axes) {
      std::vector<int> members(static_cast<std::size_t>(layout.size() / layout.degree(axis)));
      for (int rank = 0; rank < layout.size(); ++rank)
        ++members.at(static_cast<std::size_t>(layout.group_index(rank, axis)));
      ASSERT_EQ(std::ranges::count(members, layout.degree(axis)), std::ssize(members)) << to_string(axis);
      for (int rank = 0; rank < layout.size(); rank += 1021) {
        const std::vector<int> group = layout.group(rank, axis);
        ASSERT_EQ(group[static_cast<std::size_t>(layout.coordinates(rank)[axis])], rank);
        for (const int member : {group.front(), group.back()})
          ASSERT_EQ(layout.group_index(member, axis), layout.group_index(rank, axis));
      }
    }
  }
}

TEST(MeshAxes, Worlds16384RanksAgreeOnTheirSums) {
  for (const MeshLayout& layout : large_layouts())
    for (const GroupKey& key : layout.groups())
      for (int rank = 0; rank < layout.size(); rank += 3271) {
        const std::vector<int> ranks = layout.reduction_ranks(rank, key);
        const GroupRank ours = layout.group_rank(rank, key);
        ASSERT_EQ(static_cast<int>(ranks.size()), ours.size) << to_string(key) << " of " << layout.text();
        for (const int index : {0, ours.rank, ours.size - 1}) {
          const int member = ranks[static_cast<std::size_t>(index)];
          ASSERT_EQ(layout.group_rank(member, key).rank, index) << to_string(key) << " of " << layout.text();
          ASSERT_EQ(layout.reduction_ranks(member, key), ranks);
        }
      }
}

// Context ranks lie behind the tensor ranks, expert ranks behind those.
TEST(MeshAxes, RanksRunAlongTensorContextExpertDataPipeline) {
  const MeshLayout layout{.degrees = PerAxis::degrees(2, 2, 2).with(Axis::cp, 3).with(Axis::ep, 5)};
  int rank = 0;
  for (int pp = 0; pp < 2; ++pp)
    for (int dp = 0; dp < 2; ++dp)
      for (int ep = 0; ep < 5; ++ep)
        for (int cp = 0; cp < 3; ++cp)
          for (int tp = 0; tp < 2; ++tp)
            EXPECT_EQ(layout.rank_at(PerAxis::coordinates(tp, dp, pp).with(Axis::cp, cp).with(Axis::ep, ep)), rank++);
  EXPECT_EQ(layout.text(), "tensor 2 x context 3 x expert 5 x data 2 x pipeline 2");
  EXPECT_EQ(make_layout(8, 2, 4, 1).text(), "tensor 2 x data 4 x pipeline 1");
}

}  // namespace
}  // namespace espalier
