// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What ZeRO-2 and -3 do with layers inside the operations: the lists, their proof, and the walk through them.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "parallel/schedule/unit_simulator.hpp"
#include "tests/parallel/schedule_shapes.hpp"

namespace espalier {
namespace {

using Kind = UnitAction::Kind;
using Actions = std::vector<UnitAction>;
using Layers = std::vector<Index>;

std::string text(const Actions& actions) {
  std::vector<std::string> words;
  for (const UnitAction& action : actions)
    words.push_back(espalier::text(action));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::string text_of(const PipelineShape& shape, int stage, const Layers& layers, UnitBuffers buffers) {
  return text(unit_list(make_schedule(shape, stage), layers, buffers).actions);
}

constexpr PipelineShape one_stage(int microbatches) { return {.microbatches = microbatches}; }

TEST(UnitActions, PassesAreThoseOfTheList) {
  const std::vector<UnitPass> wanted = {{0}, {1}, {1, true}, {0, true}};
  EXPECT_EQ(unit_passes(make_schedule(one_stage(1), 0), {2}), wanted);
  const PipelineSchedule two_chunks = {{.kind = OperationKind::forward, .chunk = 1},
                                       {.kind = OperationKind::send_activations, .chunk = 1},
                                       {.kind = OperationKind::backward_input, .chunk = 0},
                                       {.kind = OperationKind::backward_weight, .chunk = 0}};
  const std::vector<UnitPass> of_two = {{2}, {3}, {4}, {1}, {0}, {1, true}, {0, true}};
  EXPECT_EQ(unit_passes(two_chunks, {2, 3}), of_two);
  EXPECT_EQ(unit_at({2, 3}, 1, 0), -1) << "the embedding";
  EXPECT_EQ(unit_at({2, 3}, 1, 3), 4);
  EXPECT_EQ(unit_at({2, 3}, 1, 4), -1) << "the head";
}

TEST(UnitActions, TheNextLayerComesWhileOneIsUsed) {
  EXPECT_EQ(text_of(one_stage(1), 0, {3}, {.weights = 2, .gradients = 2}),
            "gather 0, wait_for_weights 0, gather 1, release 0, wait_for_weights 1, gather 2, release 1, "
            "wait_for_weights 2, release 2, wait_for_weights 2, wait_for_buffer 2, release 2, last reduce 2, "
            "wait_for_weights 1, gather 0, wait_for_buffer 1, release 1, last reduce 1, wait_for_weights 0, "
            "wait_for_buffer 0, release 0, last reduce 0");
}

TEST(UnitActions, WithOneBufferItComesBehindTheRelease) {
  EXPECT_EQ(text_of(one_stage(1), 0, {2}, {.weights = 1, .gradients = 1}),
            "gather 0, wait_for_weights 0, release 0, gather 1, wait_for_weights 1, release 1, wait_for_weights 1, "
            "wait_for_buffer 1, release 1, last reduce 1, gather 0, wait_for_weights 0, wait_for_buffer 0, "
            "release 0, last reduce 0");
}

TEST(UnitActions, KeptLayersAreGatheredOnceAndReducedForEachMicroBatch) {
  EXPECT_EQ(text_of(one_stage(2), 0, {2}, {.weights = 2, .gradients = 2}),
            "gather 0, wait_for_weights 0, gather 1, release 0, wait_for_weights 1, release 1, wait_for_weights 1, "
            "wait_for_buffer 1, release 1, reduce 1, wait_for_weights 0, wait_for_buffer 0, release 0, reduce 0, "
            "wait_for_weights 0, release 0, wait_for_weights 1, release 1, wait_for_weights 1, wait_for_buffer 1, "
            "release 1, last reduce 1, wait_for_weights 0, wait_for_buffer 0, release 0, last reduce 0");
}

TEST(UnitActions, WholeWeightsAreNotGathered) {
  const PipelineShape shape{.kind = ScheduleKind::one_f_one_b, .stages = 2, .microbatches = 2};
  EXPECT_EQ(text_of(shape, 0, {2}, {.gradients = 2}),
            "wait_for_buffer 1, reduce 1, wait_for_buffer 0, reduce 0, wait_for_buffer 1, last reduce 1, "
            "wait_for_buffer 0, last reduce 0");
  EXPECT_EQ(text_of(shape, 0, {2}, {}), "");
}

TEST(UnitActions, OneForwardOneBackwardKeepsOneLayerOverMicroBatches) {
  const PipelineShape shape{.kind = ScheduleKind::one_f_one_b, .stages = 2, .microbatches = 2};
  EXPECT_EQ(text_of(shape, 0, {1}, {.weights = 2, .gradients = 2}),  // F0 F1 B0 B1
            "gather 0, wait_for_weights 0, release 0, wait_for_weights 0, release 0, wait_for_weights 0, "
            "wait_for_buffer 0, release 0, reduce 0, wait_for_weights 0, wait_for_buffer 0, release 0, last reduce 0");
}

TEST(UnitActions, ZeroBubbleWritesInTheWeightPart) {
  const PipelineShape shape{.kind = ScheduleKind::zero_bubble, .stages = 2, .microbatches = 2};
  EXPECT_EQ(text_of(shape, 0, {1}, {.weights = 2, .gradients = 2}),  // F0 F1 Bi0 W0 Bi1 W1
            "gather 0, wait_for_weights 0, release 0, wait_for_weights 0, release 0, wait_for_weights 0, release 0, "
            "wait_for_weights 0, wait_for_buffer 0, release 0, reduce 0, wait_for_weights 0, release 0, "
            "wait_for_weights 0, wait_for_buffer 0, release 0, last reduce 0");
}

TEST(UnitActions, InterleavedChunksTakeEachOthersBuffers) {
  const PipelineShape shape{.kind = ScheduleKind::interleaved, .stages = 2, .chunks = 2, .microbatches = 2};
  ASSERT_EQ(work(make_schedule(shape, 1), true), "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1! B0.0 B1.0!");
  EXPECT_EQ(text_of(shape, 1, {1, 1}, {.weights = 1, .gradients = 1}),
            "gather 0, wait_for_weights 0, release 0, wait_for_weights 0, release 0, gather 1, wait_for_weights 1, "
            "release 1, wait_for_weights 1, wait_for_buffer 1, release 1, reduce 1, wait_for_weights 1, release 1, "
            "wait_for_weights 1, wait_for_buffer 1, release 1, last reduce 1, gather 0, wait_for_weights 0, "
            "wait_for_buffer 0, release 0, reduce 0, wait_for_weights 0, wait_for_buffer 0, release 0, last reduce 0");
}

TEST(UnitActions, AreCounted) {
  const auto times = [](int microbatches, int buffers, Kind kind) {
    const UnitList list =
        unit_list(make_schedule(one_stage(microbatches), 0), {5}, {.weights = buffers, .gradients = 2});
    return times_of_units(list.actions, kind, 5);
  };
  EXPECT_EQ(times(1, 2, Kind::gather), (std::vector<int>{2, 2, 2, 1, 1})) << "the last two are still there";
  EXPECT_EQ(times(3, 5, Kind::gather), std::vector<int>(5, 1));
  EXPECT_EQ(times(2, 1, Kind::gather), (std::vector<int>{3, 4, 4, 4, 2}));
  EXPECT_EQ(times(3, 2, Kind::reduce), std::vector<int>(5, 3));
}

TEST(UnitActions, OfAllSchedulesAreProven) {
  for_each_shape([](const PipelineShape& shape) {
    if (shape.stages > 4 || shape.microbatches > 6)
      return;
    const Layers layers(static_cast<std::size_t>(shape.chunks), 2);
    const int all = 2 * shape.chunks;
    for (int stage = 0; stage < shape.stages; ++stage)
      for (const UnitBuffers buffers : {UnitBuffers{}, UnitBuffers{0, 2}, UnitBuffers{1, 1}, UnitBuffers{2, 2},
                                        UnitBuffers{3, 1}, UnitBuffers{all, 2}}) {
        const PipelineSchedule schedule = make_schedule(shape, stage);
        const UnitList list = unit_list(schedule, layers, buffers);
        ASSERT_EQ(check_unit_actions(list.actions, unit_passes(schedule, layers), buffers), "") << shape;
        const std::vector<int> reductions = times_of_units(list.actions, Kind::reduce, all);
        EXPECT_EQ(reductions, std::vector<int>(reductions.size(), buffers.gradients == 0 ? 0 : shape.microbatches));
      }
  });
}

// ---- the proof ----

Actions without(Actions actions, std::ptrdiff_t i) {
  actions.erase(actions.begin() + i);
  return actions;
}
Actions with(Actions actions, std::ptrdiff_t i, const UnitAction& action) {
  actions.insert(actions.begin() + i, action);
  return actions;
}
Actions moved(const Actions& actions, std::ptrdiff_t from, std::ptrdiff_t to) {
  return with(without(actions, from), to, actions[static_cast<std::size_t>(from)]);
}
Actions first(Actions actions, std::size_t size) {
  actions.resize(size);
  return actions;
}

/// Three layers, so many micro-batches.
struct Proven {
  explicit Proven(UnitBuffers its_buffers, int microbatches = 1) : buffers(its_buffers) {
    const PipelineSchedule schedule = make_schedule(one_stage(microbatches), 0);
    passes = unit_passes(schedule, {3});
    actions = unit_actions(passes, buffers);
    EXPECT_EQ(problem(actions), "");
  }
  std::string problem(const Actions& wrong) const { return check_unit_actions(wrong, passes, buffers); }

  UnitBuffers buffers;
  std::vector<UnitPass> passes;
  Actions actions;
};

// Actions 0 to 8: those of forward, to release 2. 9 to 21: wait_for_weights 2, wait_for_buffer 2, release 2, reduce 2,
// wait_for_weights 1, gather 0, wait_for_buffer 1, release 1, reduce 1, wait_for_weights 0, wait_for_buffer 0, ...
constexpr UnitBuffers two_each{.weights = 2, .gradients = 2};

TEST(UnitActionsProof, FindsWrongGathers) {
  const Proven list(two_each);
  EXPECT_EQ(list.problem(moved(list.actions, 2, 4)), "wait_for_weights 1 (action 3) comes before its gather");
  EXPECT_EQ(list.problem(moved(list.actions, 5, 3)), "gather 2 (action 3) overwrites unit 0, which is in use");
  EXPECT_EQ(list.problem(with(list.actions, 4, {Kind::gather, 3})),
            "gather 3 (action 4) overwrites unit 1, which is not used yet");
  EXPECT_EQ(list.problem(without(list.actions, 5)), "wait_for_weights 2 (action 6) finds unit 0 in its buffer");
  EXPECT_EQ(list.problem(with(list.actions, 22, {Kind::gather, 1})), "unit 1 is gathered, not used, at the end");
  const Proven whole({.gradients = 2});
  EXPECT_EQ(whole.problem(with(whole.actions, 0, {Kind::gather, 0})),
            "gather 0 (action 0) has nothing to gather: weights are not sharded");
}

TEST(UnitActionsProof, FindsWrongUses) {
  const Proven list(two_each);
  EXPECT_EQ(list.problem(without(list.actions, 4)), "release 1 (action 5) is of a unit that is not in use");
  EXPECT_EQ(list.problem(without(list.actions, 3)), "wait_for_weights 1 (action 3) comes before the release of unit 0");
  EXPECT_EQ(list.problem(with(list.actions, 7, {Kind::wait_for_weights, 1})),
            "wait_for_weights 1 (action 7) is not the next use of the list");
  EXPECT_EQ(list.problem(first(list.actions, 18)), "unit 0 is not used at the end");
  EXPECT_EQ(list.problem(first(list.actions, 20)), "unit 0 is in use at the end");
}

TEST(UnitActionsProof, FindsWrongWrites) {
  const Proven list(two_each);
  EXPECT_EQ(list.problem(without(list.actions, 10)),
            "release 2 (action 10) ends a pass whose gradients had no buffer: there was no wait_for_buffer");
  EXPECT_EQ(list.problem(with(list.actions, 8, {Kind::wait_for_buffer, 2})),
            "wait_for_buffer 2 (action 8) is not of a pass that writes gradients");
  EXPECT_EQ(list.problem(without(list.actions, 12)),
            "wait_for_buffer 0 (action 18) overwrites the gradients of unit 2, which are not reduced");
  const Proven one({.weights = 2, .gradients = 1});
  EXPECT_EQ(one.problem(without(one.actions, 12)),
            "wait_for_buffer 1 (action 14) overwrites the gradients of unit 2, which are not reduced");
  const Proven whole({.gradients = 2});  // wait_for_buffer 2, reduce 2, wait_for_buffer 1, ...
  EXPECT_EQ(whole.problem(without(whole.actions, 0)), "last reduce 2 (action 0) is of gradients that were not written");
  EXPECT_EQ(whole.problem(with(whole.actions, 0, {Kind::wait_for_buffer, 1})),
            "wait_for_buffer 1 (action 0) is not of a pass that writes gradients");
  EXPECT_EQ(whole.problem(first(whole.actions, 4)), "unit 0 is not written at the end");
}

TEST(UnitActionsProof, FindsWrongReductions) {
  const Proven list(two_each);
  EXPECT_EQ(list.problem(moved(list.actions, 12, 11)),
            "last reduce 2 (action 11) comes before the end of the pass that writes them");
  EXPECT_EQ(list.problem(with(list.actions, 13, {Kind::reduce, 2, true})),
            "last reduce 2 (action 13) is of gradients that were not written");
  EXPECT_EQ(list.problem(first(list.actions, 21)), "the gradients of unit 0 are not reduced at the end");
  const Proven twice({.gradients = 2}, 2);
  Actions early = twice.actions;
  early[1].is_last = true;
  EXPECT_EQ(twice.problem(early), "last reduce 2 (action 1) is flagged, and 1 more follow");
  Actions never = twice.actions;
  never[7].is_last = false;
  EXPECT_EQ(twice.problem(never), "reduce 2 (action 7) is the last of its unit, and not flagged");
}

// ---- its price ----

double exposed(UnitBuffers buffers, double gather, double reduce) {  // two layers of a second each way
  const PipelineSchedule schedule = make_schedule(one_stage(1), 0);
  const std::vector<UnitPass> passes = unit_passes(schedule, {2});
  const UnitTimes times{.kernels = std::vector<double>(passes.size(), 1), .gather = gather, .reduce = reduce};
  return exposed_seconds(unit_list(schedule, {2}, buffers), passes, times);
}

TEST(UnitSimulator, WhatGoesOnBesideKernelsIsHidden) {
  EXPECT_EQ(exposed({}, 1, 1), 0);
  EXPECT_EQ(exposed(two_each, 0.5, 0), 0.5) << "the first gather; the second is done before its layer";
  EXPECT_EQ(exposed(two_each, 3, 0), 3 + 2) << "the second goes on for two seconds behind the first layer";
  EXPECT_EQ(exposed({.weights = 1, .gradients = 1}, 0.5, 0), 3 * 0.5) << "each waits for the buffer";
  EXPECT_EQ(exposed({.gradients = 2}, 0, 0.5), 0.5) << "the last sum; that of the other layer is hidden";
  EXPECT_EQ(exposed({.gradients = 2}, 0, 3), 2 * 3 - 1) << "one second of the first";
  EXPECT_EQ(exposed({.gradients = 1}, 0, 3), 2 * 3) << "layer 0 waits for the buffer";
}

// ---- the walk ----

std::string walked(int microbatches, UnitBuffers buffers) {
  const PipelineSchedule schedule = make_schedule(one_stage(microbatches), 0);
  std::vector<std::string> words;
  UnitActionRunner walk(unit_list(schedule, {2}, buffers),
                        [&](const UnitAction& action) { words.push_back(espalier::text(action)); });
  for (const UnitPass& pass : unit_passes(schedule, {2})) {
    walk.enter(pass);
    words.push_back(fmt::format("COMPUTE {}", pass.unit));
    walk.leave();
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

TEST(UnitActionRunner, DoesEachActionBeforeOrBehindItsKernels) {
  EXPECT_EQ(walked(1, two_each),
            "gather 0, wait_for_weights 0, gather 1, COMPUTE 0, release 0, wait_for_weights 1, COMPUTE 1, release 1, "
            "wait_for_weights 1, wait_for_buffer 1, COMPUTE 1, release 1, last reduce 1, wait_for_weights 0, "
            "wait_for_buffer 0, COMPUTE 0, release 0, last reduce 0");
  EXPECT_EQ(walked(1, {.weights = 1, .gradients = 1}),
            "gather 0, wait_for_weights 0, COMPUTE 0, release 0, gather 1, wait_for_weights 1, COMPUTE 1, release 1, "
            "wait_for_weights 1, wait_for_buffer 1, COMPUTE 1, release 1, last reduce 1, gather 0, "
            "wait_for_weights 0, wait_for_buffer 0, COMPUTE 0, release 0, last reduce 0");
  EXPECT_EQ(walked(1, {.gradients = 2}),
            "COMPUTE 0, COMPUTE 1, wait_for_buffer 1, COMPUTE 1, last reduce 1, wait_for_buffer 0, COMPUTE 0, "
            "last reduce 0");
  EXPECT_EQ(walked(1, {}), "COMPUTE 0, COMPUTE 1, COMPUTE 1, COMPUTE 0");
}

TEST(UnitActionRunner, RefusesAnotherPassThanTheNext) {
  UnitActionRunner walk(unit_list(make_schedule(one_stage(1), 0), {2}, two_each), [](const UnitAction&) {});
  EXPECT_ANY_THROW(walk.enter({1}));
  walk.enter({0});
  walk.leave();
  walk.enter({1});
  walk.leave();
  EXPECT_ANY_THROW(walk.enter({0, true}));
}

}  // namespace
}  // namespace espalier
