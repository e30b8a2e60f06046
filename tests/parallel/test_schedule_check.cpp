// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "parallel/process_mesh.hpp"
#include "parallel/schedule_check.hpp"
#include "tests/parallel/schedule_shapes.hpp"

namespace espalier {
namespace {

using Lists = std::vector<PipelineSchedule>;

std::string joined(const std::vector<std::string>& problems) {
  std::string all;
  for (const std::string& problem : problems)
    all += problem + "\n";
  return all;
}

/// That the lists are refused with this sentence among the problems.
void expect_problem(const std::vector<std::string>& problems, const std::string& sentence) {
  EXPECT_TRUE(std::find(problems.begin(), problems.end(), sentence) != problems.end())
      << "wanted: " << sentence << "\ngot:\n"
      << joined(problems);
}

/// The first operation with this text.
PipelineSchedule::iterator find(PipelineSchedule& list, const std::string& operation, bool several_chunks = false) {
  const auto found = std::find_if(list.begin(), list.end(),
                                  [&](const Operation& each) { return text(each, several_chunks) == operation; });
  EXPECT_NE(found, list.end()) << operation;
  return found;
}

void drop(PipelineSchedule& list, const std::string& operation) { list.erase(find(list, operation)); }

void exchange(PipelineSchedule& list, const std::string& a, const std::string& b) {
  std::iter_swap(find(list, a), find(list, b));
}

const PipelineShape two_by_two{.stages = 2, .microbatches = 2};

TEST(ScheduleCheck, AllSchedulesAreProven) {
  for_each_shape([](const PipelineShape& shape) {
    const auto problems = check_schedules(make_schedules(shape), shape);
    ASSERT_TRUE(problems.empty()) << shape << ":\n" << joined(problems);
  });
}

TEST(ScheduleCheck, DroppedSend) {
  Lists lists = make_schedules(two_by_two);
  drop(lists[0], "send F1 to stage 1");
  expect_problem(check_schedules(lists, two_by_two), "stage 0: send F1 to stage 1 is missing");
}

TEST(ScheduleCheck, DroppedReceive) {
  Lists lists = make_schedules(two_by_two);
  drop(lists[0], "recv B0 from stage 1");
  expect_problem(check_schedules(lists, two_by_two), "stage 0: recv B0 from stage 1 is missing");
}

TEST(ScheduleCheck, SwappedReceives) {
  Lists lists = make_schedules(two_by_two);
  exchange(lists[1], "recv F0 from stage 0", "recv F1 from stage 0");
  expect_problem(check_schedules(lists, two_by_two),
                 "stage 1: F0 (operation 1) comes before recv F0 from stage 0 (operation 4)");
}

// Complete and in order by itself: only the other stage shows that the messages come the other way round.
TEST(ScheduleCheck, ReceivesInAnotherOrderThanTheSends) {
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .stages = 2, .microbatches = 2};
  Lists lists = make_schedules(shape);
  exchange(lists[1], "recv F0 from stage 0", "recv F1 from stage 0");
  exchange(lists[1], "F0", "F1");
  expect_problem(check_schedules(lists, shape),
                 "stage 1: recv F1 from stage 0 meets message 0 of its kind from there, which is send F0 to stage 1 of "
                 "stage 0");
}

TEST(ScheduleCheck, WrongPeer) {
  const PipelineShape shape{.stages = 3, .microbatches = 2};
  Lists lists = make_schedules(shape);
  find(lists[1], "send F0 to stage 2")->peer = 0;
  expect_problem(check_schedules(lists, shape),
                 "stage 1: send F0 to stage 0 (operation 2) has the wrong peer: stage 2 is at the other end");
}

TEST(ScheduleCheck, MissingBackward) {
  Lists lists = make_schedules(two_by_two);
  drop(lists[0], "B0");
  expect_problem(check_schedules(lists, two_by_two), "stage 0: B0 is missing");
}

TEST(ScheduleCheck, MissingWeightPart) {
  const PipelineShape shape{.kind = ScheduleKind::zero_bubble, .stages = 2, .microbatches = 2};
  Lists lists = make_schedules(shape);
  drop(lists[1], "W0");
  expect_problem(check_schedules(lists, shape), "stage 1: W0 is missing");
}

TEST(ScheduleCheck, WeightPartTwice) {
  Lists lists = make_schedules(two_by_two);
  const auto backward = find(lists[0], "B0");
  lists[0].insert(backward + 1, {.kind = OperationKind::backward_weight, .microbatch = 0});
  expect_problem(check_schedules(lists, two_by_two), "stage 0: W0 (operation 6) repeats a part of B0 (operation 5)");
}

TEST(ScheduleCheck, DoubledForward) {
  Lists lists = make_schedules(two_by_two);
  const Operation forward = *find(lists[1], "F1");
  lists[1].insert(find(lists[1], "F1"), forward);
  expect_problem(check_schedules(lists, two_by_two), "stage 1: F1 is there twice, as operations 5 and 6");
}

TEST(ScheduleCheck, BackwardBeforeForward) {
  Lists lists = make_schedules(two_by_two);
  exchange(lists[1], "F1", "B1");
  expect_problem(check_schedules(lists, two_by_two), "stage 1: B1 (operation 5) comes before F1 (operation 6)");
}

TEST(ScheduleCheck, BackwardsOutOfOrderWouldChangeTheBits) {
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .stages = 1, .microbatches = 2};
  Lists lists = make_schedules(shape);
  exchange(lists[0], "B0", "B1");
  expect_problem(check_schedules(lists, shape), "stage 0: B1 (operation 2) comes before B0 (operation 3)");
}

TEST(ScheduleCheck, MissingReduce) {
  Lists lists = make_schedules(two_by_two);
  drop(lists[1], "reduce");
  expect_problem(check_schedules(lists, two_by_two), "stage 1: reduce is missing");
}

TEST(ScheduleCheck, ReduceBeforeTheLastBackward) {
  Lists lists = make_schedules(two_by_two);
  exchange(lists[0], "B1", "reduce");
  expect_problem(check_schedules(lists, two_by_two), "stage 0: reduce (operation 7) comes before B1 (operation 8)");
}

TEST(ScheduleCheck, ReductionStartsTooEarlyOrNever) {
  Lists lists = make_schedules(two_by_two);
  find(lists[0], "B0")->reduces = true;
  find(lists[1], "B1")->reduces = false;
  const auto problems = check_schedules(lists, two_by_two);
  expect_problem(problems, "stage 0: B0 (operation 5) starts to reduce gradients that are not final");
  expect_problem(problems,
                 "stage 1: B1 (operation 6) is the last of its chunk, but does not start to reduce its gradients");
}

TEST(ScheduleCheck, MissingTiedReduce) {
  Lists lists = make_schedules(two_by_two);
  drop(lists[1], "tied_reduce");
  expect_problem(check_schedules(lists, two_by_two), "stage 1: tied_reduce is missing");
}

TEST(ScheduleCheck, TiedReduceWithoutTiedEmbeddings) {
  PipelineShape shape = two_by_two;
  const Lists lists = make_schedules(shape);
  shape.ties_embeddings = false;
  expect_problem(check_schedules(lists, shape), "stage 0: tied_reduce (operation 9) does not belong here");
}

TEST(ScheduleCheck, OptimizerBeforeReduce) {
  Lists lists = make_schedules(two_by_two);
  exchange(lists[0], "reduce", "optimizer");
  expect_problem(check_schedules(lists, two_by_two),
                 "stage 0: optimizer (operation 8) comes before reduce (operation 10)");
}

TEST(ScheduleCheck, WeightsGatheredBeforeTheyAreUpdated) {
  PipelineShape shape = two_by_two;
  shape.gathers_weights = true;
  Lists lists = make_schedules(shape);
  exchange(lists[0], "gather_weights", "optimizer");
  expect_problem(check_schedules(lists, shape),
                 "stage 0: gather_weights (operation 10) comes before optimizer (operation 11)");
}

// Each list is right by itself, and messages come in order: but each stage waits for what the other does later.
TEST(ScheduleCheck, CircularReceives) {
  Lists lists = make_schedules(two_by_two);
  lists[0] = make_schedule({.kind = ScheduleKind::sequential, .stages = 2, .microbatches = 2}, 0);
  lists[1] = make_schedule({.kind = ScheduleKind::gpipe, .stages = 2, .microbatches = 2}, 1);
  const auto problems = check_schedules(lists, two_by_two);
  expect_problem(problems, "stage 0 waits for ever at recv B0 from stage 1 (operation 2)");
  expect_problem(problems, "stage 1 waits for ever at recv F1 from stage 0 (operation 2)");
}

TEST(ScheduleCheck, ChunksAreNamed) {
  const PipelineShape shape{.kind = ScheduleKind::interleaved, .stages = 2, .chunks = 2, .microbatches = 2};
  Lists lists = make_schedules(shape);
  lists[1].erase(find(lists[1], "send F0.0 to stage 0", true));
  expect_problem(check_schedules(lists, shape), "stage 1: send F0.0 to stage 0 is missing");
}

TEST(ScheduleCheck, NonsenseIsNamed) {
  Lists lists = make_schedules(two_by_two);
  find(lists[0], "F0")->microbatch = 7;
  find(lists[0], "optimizer")->peer = 1;
  find(lists[1], "F0")->chunk = 3;
  const auto problems = check_schedules(lists, two_by_two);
  expect_problem(problems, "stage 0: operation 0, F7, has micro-batch 7, but there are 2 (-1 for the whole step)");
  expect_problem(problems, "stage 0: operation 10, optimizer, is no message and has the peer 1");
  expect_problem(problems, "stage 1: operation 1, F0, has chunk 3, but there are 1 a stage");
}

TEST(ScheduleCheck, AtMostTenProblems) {
  EXPECT_EQ(check_schedules(Lists(8), {.stages = 8, .microbatches = 8}).size(), 10U);
  EXPECT_EQ(check_schedules(Lists(3), two_by_two).size(), 1U);
}

// ---- Worlds ----

Lists world(const MeshLayout& layout, const PipelineShape& shape, const TensorCollectives& tensor = {}) {
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

TEST(ScheduleCheck, WorldsOf4096Ranks) {
  for (const MeshLayout& layout : {MeshLayout{.degrees = {{8, 8, 64}}}, MeshLayout{.degrees = {{1, 4096, 1}}},
                                   MeshLayout{.degrees = {{16, 32, 8}}, .order = {Axis::pp, Axis::dp, Axis::tp}}}) {
    const PipelineShape shape{.kind = ScheduleKind::one_f_one_b, .stages = layout.degree(Axis::pp), .microbatches = 16};
    Lists ranks = world(layout, shape, {.all_reduce = 24});
    EXPECT_EQ(joined(check_schedules(ranks, layout, shape)), "") << layout.text();

    // One rank of 4096 does one collective less: the whole world is looked at.
    const int odd = layout.size() - 1;
    find(ranks[static_cast<std::size_t>(odd)], "F3")->tensor = {.all_reduce = 23};
    if (layout.degree(Axis::tp) > 1) {
      EXPECT_NE(joined(check_schedules(ranks, layout, shape)).find("rank 4095 (stage "), std::string::npos);
    } else {
      EXPECT_EQ(joined(check_schedules(ranks, layout, shape)), "");
    }
  }
}

TEST(ScheduleCheck, TensorCollectivesOfTwoRanksDiffer) {
  const MeshLayout layout{.degrees = {{2, 1, 2}}};
  Lists ranks = world(layout, two_by_two, {.all_reduce = 2});
  find(ranks[3], "F1")->tensor = {.all_gather = 2};
  expect_problem(check_schedules(ranks, layout, two_by_two),
                 "rank 3 (stage 1, dp 0, tp 1): for collective 2 of its tp group it is at F1 (all_reduce 0, all_gather "
                 "2, reduce_scatter 0), and rank 2 is at F1 (all_reduce 2, all_gather 0, reduce_scatter 0)");
}

// F1 and B0 are independent on one stage of gpipe order: each rank may do either first, but not one this, one that.
TEST(ScheduleCheck, ExchangedCollectivesOfTwoRanks) {
  const MeshLayout layout{.degrees = {{2, 1, 1}}};
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .microbatches = 2};
  Lists ranks = world(layout, shape, {.all_reduce = 2});
  exchange(ranks[1], "F1", "B0");
  expect_problem(check_schedules(ranks, layout, shape),
                 "rank 1 (stage 0, dp 0, tp 1): for collective 1 of its tp group it is at B0 (all_reduce 2, all_gather "
                 "0, reduce_scatter 0), and rank 0 is at F1 (all_reduce 2, all_gather 0, reduce_scatter 0)");
  for (PipelineSchedule& list : ranks)
    for (Operation& operation : list)
      operation.tensor = {};
  EXPECT_EQ(joined(check_schedules(ranks, layout, shape)), "");  // nothing to disagree about
}

TEST(ScheduleCheck, ExchangedReductionsOfTwoReplicas) {
  const MeshLayout layout{.degrees = {{1, 2, 1}}};
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .chunks = 2, .microbatches = 2};
  Lists ranks = world(layout, shape);
  std::iter_swap(find(ranks[1], "reduce chunk 0", true), find(ranks[1], "reduce chunk 1", true));
  expect_problem(
      check_schedules(ranks, layout, shape),
      "rank 1 (stage 0, dp 1, tp 0): for collective 2 of its dp group it is at reduce chunk 0, and rank 0 is "
      "at reduce chunk 1");
}

// One replica's pipeline follows gpipe, the other's 1f1b. Along dp they agree: a legal world, run as a whole.
TEST(ScheduleCheck, ReplicasMayDifferWhereNoCollectiveDoes) {
  const MeshLayout layout{.degrees = {{1, 2, 2}}};
  Lists ranks = world(layout, two_by_two);
  const Lists other = make_schedules({.kind = ScheduleKind::gpipe, .stages = 2, .microbatches = 2});
  ranks[1] = other[0];
  ranks[3] = other[1];
  EXPECT_EQ(joined(check_schedules(ranks, layout, two_by_two)), "");
}

// The order of each group is right, but tp ranks wait for each other's pipelines in a circle: only running shows it.
TEST(ScheduleCheck, DeadlockAcrossPipelines) {
  const MeshLayout layout{.degrees = {{2, 1, 2}}};
  Lists ranks = world(layout, two_by_two);
  ranks[3] = make_schedule({.kind = ScheduleKind::gpipe, .stages = 2, .microbatches = 2}, 1);
  for (const std::size_t rank : {2U, 3U})  // one sums in F1, the other in B0: one place each in the order of the group
    for (Operation& operation : ranks[rank])
      if (text(operation) == "F1")
        operation.tensor = {.all_reduce = 1};
  EXPECT_EQ(joined(check_schedules(ranks, layout, two_by_two)), "");
  ranks[1] = make_schedule({.kind = ScheduleKind::sequential, .stages = 2, .microbatches = 2}, 0);
  expect_problem(check_schedules(ranks, layout, two_by_two),
                 "rank 3 (stage 1, dp 0, tp 1) waits for ever at recv F1 from stage 0 (operation 2)");
  expect_problem(check_schedules(ranks, layout, two_by_two),
                 "rank 2 (stage 1, dp 0, tp 0) waits for ever at F1 (operation 5)");
}

TEST(ScheduleCheck, AsManyListsAsRanks) {
  const MeshLayout layout{.degrees = {{2, 2, 2}}};
  expect_problem(check_schedules(make_schedules(two_by_two), layout, two_by_two),
                 "2 lists and 2 stages for tensor 2 x data 2 x pipeline 2 (8 ranks)");
}

// ---- Mutations ----

/// Changes one thing in one list so that it is no longer the schedule it was. @return what, or "" if it came to
/// nothing.
std::string mutate(Lists& lists, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  PipelineSchedule& list = lists[below(lists.size())];
  const auto place = list.begin() + static_cast<std::ptrdiff_t>(below(list.size()));
  const Operation before = *place;
  const std::string name = text(before, true);
  switch (below(7)) {
    case 0: list.erase(place); return "dropped " + name;
    case 1:
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(below(list.size() + 1)), before);
      return "doubled " + name;
    case 2: place->kind = static_cast<OperationKind>(below(12)); break;
    case 3: place->chunk += below(2) == 0 ? 1 : -1; break;
    case 4: place->microbatch += below(2) == 0 ? 1 : -1; break;
    case 5: place->peer = static_cast<int>(below(lists.size() + 1)) - 1; break;
    case 6: place->reduces = !place->reduces; break;
  }
  return *place == before ? "" : name + " became " + text(*place, true);
}

TEST(ScheduleCheck, RandomMutationsAreRefused) {
  std::mt19937 random(4);
  int mutations = 0;
  for_each_shape([&](const PipelineShape& shape) {
    if (shape.stages > 8 || shape.microbatches > 9)
      return;
    const Lists valid = make_schedules(shape);
    for (int i = 0; i < 20; ++i) {
      Lists lists = valid;
      const std::string what = mutate(lists, random);
      if (what.empty())
        continue;
      ++mutations;
      ASSERT_FALSE(check_schedules(lists, shape).empty()) << shape << ": " << what;
    }
  });
  EXPECT_GT(mutations, 10000);
}

/// Whether one of two neighbours must come before the other, whatever the rest does: they are steps of one chunk of one
/// micro-batch, messages of one kind between the same stages, gradients added to one chunk, or part of the update.
bool depend(const Operation& a, const Operation& b) {
  const auto adds = [](const Operation& o) {
    return o.kind == OperationKind::backward || o.kind == OperationKind::backward_weight;
  };
  const auto updates = [](const Operation& o) { return o.kind >= OperationKind::optimizer; };
  if (updates(a) || updates(b))
    return a.kind >= OperationKind::reduce && b.kind >= OperationKind::reduce;
  if (a.microbatch == -1 || b.microbatch == -1)
    return false;
  const bool same_part = a.chunk == b.chunk && a.microbatch == b.microbatch;
  const bool weight_is_alone = (a.kind == OperationKind::backward_weight || b.kind == OperationKind::backward_weight) &&
                               a.kind != OperationKind::backward_input && b.kind != OperationKind::backward_input;
  return (same_part && !weight_is_alone) || (a.chunk == b.chunk && adds(a) && adds(b)) ||
         (a.kind == b.kind && a.peer == b.peer && a.peer >= 0);
}

TEST(ScheduleCheck, ExchangedDependentOperationsAreRefused) {
  int mutations = 0;
  for_each_shape([&](const PipelineShape& shape) {
    if (shape.stages > 5 || shape.microbatches > 6)
      return;
    Lists lists = make_schedules(shape);
    for (PipelineSchedule& list : lists)
      for (std::size_t i = 0; i + 1 < list.size(); ++i) {
        if (!depend(list[i], list[i + 1]))
          continue;
        std::swap(list[i], list[i + 1]);
        ++mutations;
        ASSERT_FALSE(check_schedules(lists, shape).empty())
            << shape << ": " << text(list[i], true) << " before " << text(list[i + 1], true);
        std::swap(list[i], list[i + 1]);
      }
  });
  EXPECT_GT(mutations, 1000);
}

}  // namespace
}  // namespace espalier
