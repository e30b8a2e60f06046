// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "parallel/mesh/mesh_layout.hpp"
#include "parallel/schedule/schedule_check.hpp"
#include "parallel/schedule/schedule_run.hpp"
#include "tests/parallel/schedule_faults.hpp"
#include "tests/parallel/schedule_shapes.hpp"

namespace espalier {
namespace {

const PipelineShape two_by_two{.stages = 2, .microbatches = 2};
const PipelineShape zero_bubble{.kind = ScheduleKind::zero_bubble, .stages = 2, .microbatches = 2};
const PipelineShape one_stage{.kind = ScheduleKind::gpipe, .stages = 1, .microbatches = 2};
const PipelineShape gathering{.stages = 2, .microbatches = 2, .gathers_weights = true};

TEST(ScheduleCheck, AllSchedulesAreProven) {
  for_each_shape([](const PipelineShape& shape) {
    const auto problems = check_schedules(make_schedules(shape), shape);
    ASSERT_TRUE(problems.empty()) << shape << ":\n" << joined(problems);
  });
}

// Whether one pipeline gets through its lists where a computation begins only when all sends of its rank are received.
// So it is where CUDA loads a kernel at its first use: it waits for the whole device, on which NCCL's sends wait for
// their receivers. The operations at the end, which wait for other stages, send nothing.
bool ends_if_computing_waits_for_sends(const Lists& lists) {
  std::vector<std::size_t> next(lists.size(), 0);
  std::vector<int> untaken(lists.size(), 0);                    // messages of a stage
  std::map<std::tuple<int, int, OperationKind>, int> channels;  // untaken, by sender, receiver and kind of send
  const auto advance = [&](int stage) {
    const auto at = static_cast<std::size_t>(stage);
    if (next[at] == lists[at].size())
      return false;
    const Operation& operation = lists[at][next[at]];
    if (is_send(operation.kind)) {
      ++channels[{stage, operation.peer, operation.kind}];
      ++untaken[at];
    } else if (is_receive(operation.kind)) {
      int& messages = channels[{operation.peer, stage, counterpart(operation.kind)}];
      if (messages == 0)
        return false;
      --messages;
      --untaken[static_cast<std::size_t>(operation.peer)];
    } else if (untaken[at] > 0) {
      return false;
    }
    ++next[at];
    return true;
  };
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (int stage = 0; stage < static_cast<int>(lists.size()); ++stage)
      while (advance(stage))
        goes_on = true;
  }
  for (std::size_t stage = 0; stage < lists.size(); ++stage)
    if (next[stage] < lists[stage].size())
      return false;
  return true;
}

// What ProcessMesh relies on.
TEST(ScheduleCheck, WithoutChunksComputingMayWaitForSends) {
  int num_stuck = 0;
  for_each_shape([&](const PipelineShape& shape) {
    const bool complete = ends_if_computing_waits_for_sends(make_schedules(shape));
    EXPECT_TRUE(complete || shape.chunks > 1) << shape;
    num_stuck += complete ? 0 : 1;
  });
  EXPECT_GT(num_stuck, 0);  // with chunks: the rule is one
}

TEST(ScheduleCheck, WhatIsMissingIsNamed) {
  struct Case {
    PipelineShape shape;
    std::size_t stage;
    std::string operation;
  };
  for (const auto& [shape, stage, operation] : std::vector<Case>{{two_by_two, 0, "send F1 to stage 1"},
                                                                 {two_by_two, 0, "recv B0 from stage 1"},
                                                                 {two_by_two, 1, "F1"},
                                                                 {two_by_two, 0, "B0"},
                                                                 {zero_bubble, 1, "Bi1"},
                                                                 {zero_bubble, 1, "W0"},
                                                                 {two_by_two, 1, "reduce"},
                                                                 {two_by_two, 1, "tied_reduce"},
                                                                 {two_by_two, 0, "optimizer"},
                                                                 {gathering, 0, "gather_weights"}}) {
    Lists lists = make_schedules(shape);
    drop(lists[stage], operation);
    expect_problem(check_schedules(lists, shape), fmt::format("stage {}: {} is missing", stage, operation));
  }
}

TEST(ScheduleCheck, WrongOrderIsNamed) {
  struct Case {
    PipelineShape shape;
    std::size_t stage;
    std::string one, other;  // exchanged
    std::string problem;
  };
  for (const Case& c : std::vector<Case>{
           {two_by_two, 1, "recv F0 from stage 0", "recv F1 from stage 0",
            "F0 (operation 1) comes before recv F0 from stage 0 (operation 4)"},
           {two_by_two, 1, "F1", "B1", "B1 (operation 5) comes before F1 (operation 6)"},
           {one_stage, 0, "B0", "B1", "B1 (operation 2) comes before B0 (operation 3)"},  // would change the bits
           {two_by_two, 0, "B1", "reduce", "reduce (operation 7) comes before B1 (operation 8)"},
           {two_by_two, 0, "reduce", "optimizer", "optimizer (operation 8) comes before reduce (operation 10)"},
           {two_by_two, 0, "tied_reduce", "optimizer",
            "optimizer (operation 9) comes before tied_reduce (operation 10)"},
           {gathering, 0, "gather_weights", "optimizer",
            "gather_weights (operation 10) comes before optimizer (operation 11)"}}) {
    Lists lists = make_schedules(c.shape);
    exchange(lists[c.stage], c.one, c.other);
    expect_problem(check_schedules(lists, c.shape), fmt::format("stage {}: {}", c.stage, c.problem));
  }
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

TEST(ScheduleCheck, ReductionStartsTooEarlyOrNever) {
  Lists lists = make_schedules(two_by_two);
  find(lists[0], "B0")->reduces = true;
  find(lists[1], "B1")->reduces = false;
  const auto problems = check_schedules(lists, two_by_two);
  expect_problem(problems, "stage 0: B0 (operation 5) starts to reduce gradients that are not final");
  expect_problem(problems,
                 "stage 1: B1 (operation 6) is the last of its chunk, but does not start to reduce its gradients");
}

TEST(ScheduleCheck, TiedReduceWhereNothingIsTied) {
  PipelineShape shape = two_by_two;
  const Lists lists = make_schedules(shape);
  shape.ties_embeddings = false;
  expect_problem(check_schedules(lists, shape), "stage 0: tied_reduce (operation 9) does not belong here");
  Lists alone = make_schedules(one_stage);
  alone[0].insert(find(alone[0], "optimizer"), {.kind = OperationKind::tied_reduce, .microbatch = -1});
  expect_problem(check_schedules(alone, one_stage), "stage 0: tied_reduce (operation 5) does not belong here");
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

}  // namespace
}  // namespace espalier
