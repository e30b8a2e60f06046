// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/mesh/process_mesh.hpp"
#include "parallel/schedule/schedule_check.hpp"
#include "tests/parallel/schedule_faults.hpp"
#include "tests/parallel/schedule_shapes.hpp"

namespace espalier {
namespace {

const PipelineShape two_by_two{.stages = 2, .microbatches = 2};

/// A list for every rank, each its own copy, with `tensor` in every forward and backward.
Lists world_lists(const MeshLayout& layout, const PipelineShape& shape, const TensorCollectives& tensor = {}) {
  Lists stages = make_schedules(shape);
  for (PipelineSchedule& list : stages)
    for (Operation& operation : list)
      if (is_work(operation) && operation.kind != OperationKind::backward_weight)
        operation.tensor = tensor;
  Lists ranks;
  for (int rank = 0; rank < layout.size(); ++rank)
    ranks.push_back(stages[static_cast<std::size_t>(layout.coordinates(rank)[Axis::pp])]);
  return ranks;
}

std::vector<std::string> check_world(const Lists& lists, const MeshLayout& layout, const PipelineShape& shape) {
  std::vector<const PipelineSchedule*> ranks;
  for (const PipelineSchedule& list : lists)
    ranks.push_back(&list);
  return check_schedules(ranks, layout, shape);
}

TensorCollectives& tensor_of(PipelineSchedule& list, const std::string& operation) {
  return find(list, operation)->tensor;
}

const MeshLayout worlds_of_4096[] = {
    {.degrees = PerAxis::degrees(8, 8, 64)},
    {.degrees = PerAxis::degrees(1, 4096, 1)},
    {.degrees = PerAxis::degrees(4096, 1, 1)},
    {.degrees = PerAxis::degrees(2, 2, 1024)},
    {.degrees = PerAxis::degrees(16, 32, 8), .order = {Axis::pp, Axis::dp, Axis::tp}},
};

TEST(WorldCheck, EveryScheduleOn4096Ranks) {
  for (const MeshLayout& layout : worlds_of_4096)
    for (const ScheduleKind kind : schedule_kinds_with_lists()) {
      const PipelineShape shape{.kind = kind,
                                .stages = layout.degree(Axis::pp),
                                .chunks = std::min(2, allowed_chunks(kind).most),
                                .microbatches = 8};
      EXPECT_EQ(joined(check_world(world_lists(layout, shape, {.all_reduce = 24}), layout, shape)), "")
          << layout.text() << ", " << shape;
    }
}

TEST(WorldCheck, OneCollectiveOfOneRankOf4096) {
  for (const MeshLayout& layout : worlds_of_4096) {
    if (layout.degree(Axis::tp) == 1)
      continue;
    const PipelineShape shape{.stages = layout.degree(Axis::pp), .microbatches = 8};
    Lists ranks = world_lists(layout, shape, {.all_reduce = 24});
    tensor_of(ranks[2047], "F3").all_reduce = 23;
    const PerAxis coordinates = layout.coordinates(2047);
    const std::string who = "rank 2047 (stage " + std::to_string(coordinates[Axis::pp]) + ", dp " +
                            std::to_string(coordinates[Axis::dp]) + ", tp " + std::to_string(coordinates[Axis::tp]) +
                            "): ";
    const auto problems = check_world(ranks, layout, shape);
    ASSERT_EQ(problems.size(), 1U) << joined(problems);
    EXPECT_EQ(problems[0].substr(0, who.size()), who);
    EXPECT_NE(problems[0].find("it is at F3 (all_reduce 23,"), std::string::npos) << problems[0];
  }
}

// Every second replica follows gpipe. Nothing differs along dp, so this is a legal world, and it is run as a whole.
TEST(WorldCheck, ReplicasOf4096RanksMayDifferWhereNoCollectiveDoes) {
  for (const MeshLayout& layout : worlds_of_4096) {
    PipelineShape shape{.kind = ScheduleKind::gpipe, .stages = layout.degree(Axis::pp), .microbatches = 8};
    Lists ranks = world_lists(layout, shape, {.all_reduce = 24});
    shape.kind = ScheduleKind::one_f_one_b;
    const Lists others = world_lists(layout, shape, {.all_reduce = 24});
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if (layout.coordinates(static_cast<int>(rank))[Axis::dp] % 2 == 1)
        ranks[rank] = others[rank];
    EXPECT_EQ(joined(check_world(ranks, layout, shape)), "") << layout.text();
  }
}

TEST(WorldCheck, TensorCollectivesOfTwoRanksDiffer) {
  const MeshLayout layout{.degrees = PerAxis::degrees(2, 1, 2)};
  Lists ranks = world_lists(layout, two_by_two, {.all_reduce = 2});
  tensor_of(ranks[3], "F1") = {.all_gather = 2};
  expect_problem(check_world(ranks, layout, two_by_two),
                 "rank 3 (stage 1, dp 0, tp 1): for collective 2 of its tp group it is at F1 (all_reduce 0, all_gather "
                 "2, reduce_scatter 0), and rank 2 is at F1 (all_reduce 2, all_gather 0, reduce_scatter 0)");
}

// F1 and B0 are independent on one stage of gpipe order: each rank may do either first, but not one this, one that.
TEST(WorldCheck, ExchangedCollectivesOfTwoRanks) {
  const MeshLayout layout{.degrees = PerAxis::degrees(2, 1, 1)};
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .microbatches = 2};
  Lists ranks = world_lists(layout, shape, {.all_reduce = 2});
  exchange(ranks[1], "F1", "B0");
  expect_problem(check_world(ranks, layout, shape),
                 "rank 1 (stage 0, dp 0, tp 1): for collective 1 of its tp group it is at B0 (all_reduce 2, all_gather "
                 "0, reduce_scatter 0), and rank 0 is at F1 (all_reduce 2, all_gather 0, reduce_scatter 0)");
  for (PipelineSchedule& list : ranks)
    for (Operation& operation : list)
      operation.tensor = {};
  EXPECT_EQ(joined(check_world(ranks, layout, shape)), "");  // nothing to disagree about
}

TEST(WorldCheck, ExchangedReductionsOfTwoReplicas) {
  const MeshLayout layout{.degrees = PerAxis::degrees(1, 2, 1)};
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .chunks = 2, .microbatches = 2};
  Lists ranks = world_lists(layout, shape);
  std::iter_swap(find(ranks[1], "reduce chunk 0", true), find(ranks[1], "reduce chunk 1", true));
  expect_problem(
      check_world(ranks, layout, shape),
      "rank 1 (stage 0, dp 1, tp 0): for collective 2 of its dp group it is at reduce chunk 0, and rank 0 is "
      "at reduce chunk 1");
}

TEST(WorldCheck, ExchangedReductionsOfTwoContextOrExpertRanks) {
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .chunks = 2, .microbatches = 2};
  for (const Axis axis : {Axis::cp, Axis::ep}) {
    const MeshLayout layout{.degrees = PerAxis::degrees(1, 1, 1).with(axis, 2)};
    Lists ranks = world_lists(layout, shape);
    EXPECT_EQ(joined(check_world(ranks, layout, shape)), "");
    std::iter_swap(find(ranks[1], "reduce chunk 0", true), find(ranks[1], "reduce chunk 1", true));
    EXPECT_NE(joined(check_world(ranks, layout, shape)).find("at reduce chunk 0, and rank 0 is at reduce chunk 1"),
              std::string::npos);
  }
}

// Each pipeline alone comes to its end, and each tp group has one collective: but the two pipelines wait for each
// other. Rank 1 waits in F1 for rank 0, which waits for B0 of rank 2, which waits in B0 for rank 3, which waits for F1
// of rank 1.
TEST(WorldCheck, DeadlockAcrossPipelines) {
  const MeshLayout layout{.degrees = PerAxis::degrees(2, 1, 2)};
  const Lists one_by_one = make_schedules({.kind = ScheduleKind::sequential, .stages = 2, .microbatches = 2});
  const Lists all_forwards = make_schedules({.kind = ScheduleKind::gpipe, .stages = 2, .microbatches = 2});
  Lists ranks{one_by_one[0], all_forwards[0], one_by_one[1], all_forwards[1]};
  EXPECT_EQ(joined(check_world(ranks, layout, two_by_two)), "");
  tensor_of(ranks[0], "F1").all_reduce = tensor_of(ranks[1], "F1").all_reduce = 1;
  EXPECT_EQ(joined(check_world(ranks, layout, two_by_two)), "");
  tensor_of(ranks[2], "B0").all_reduce = tensor_of(ranks[3], "B0").all_reduce = 1;
  EXPECT_EQ(
      check_world(ranks, layout, two_by_two),
      (std::vector<std::string>{"rank 0 (stage 0, dp 0, tp 0) waits for ever at recv B0 from stage 1 (operation 2)",
                                "rank 1 (stage 0, dp 0, tp 1) waits for ever at F1 (operation 2)",
                                "rank 2 (stage 1, dp 0, tp 0) waits for ever at B0 (operation 2)",
                                "rank 3 (stage 1, dp 0, tp 1) waits for ever at recv F1 from stage 0 (operation 2)"}));
}

TEST(WorldCheck, AsManyListsAsRanks) {
  const MeshLayout layout{.degrees = PerAxis::degrees(2, 2, 2)};
  expect_problem(check_world(make_schedules(two_by_two), layout, two_by_two),
                 "2 lists and 2 stages for tensor 2 x data 2 x pipeline 2 (8 ranks)");
}

}  // namespace
}  // namespace espalier
