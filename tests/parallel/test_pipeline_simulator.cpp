// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/schedule/pipeline_simulator.hpp"
#include "tests/parallel/schedule_shapes.hpp"

namespace espalier {
namespace {

// Small integers: sums are exact, and so is the quotient of the idle share.
struct Costs {
  double forward = 2;
  double backward_input = 2;
  double backward_weight = 2;
  double message = 0;
  double step = 0;  // reduce, optimizer and so on
};

ScheduleCosts costs(const Costs& seconds, int chunks = 1) {
  const auto compute = [=](int /*stage*/, const Operation& operation) {
    switch (operation.kind) {
      case OperationKind::forward: return seconds.forward / chunks;
      case OperationKind::backward: return (seconds.backward_input + seconds.backward_weight) / chunks;
      case OperationKind::backward_input: return seconds.backward_input / chunks;
      case OperationKind::backward_weight: return seconds.backward_weight / chunks;
      default: return seconds.step;
    }
  };
  return {.compute = compute, .message = [=](int /*stage*/, const Operation& /*send*/) { return seconds.message; }};
}

/// When an operation of a stage's list runs.
ScheduleEvent event_of(const Simulation& simulation, std::size_t stage, std::size_t index) {
  return *std::find_if(simulation.events.begin(), simulation.events.end(), [&](const ScheduleEvent& event) {
    return static_cast<std::size_t>(event.rank) == stage && event.index == index;
  });
}

Simulation price(const PipelineShape& shape, const Costs& seconds = {}) {
  return simulate(make_schedules(shape), costs(seconds, shape.chunks));
}

TEST(PipelineSimulator, GpipeAndOneForwardOneBackwardIdleAsTheFormulaSays) {
  for_each_shape([](const PipelineShape& shape) {
    if (shape.chunks > 1 || (shape.kind != ScheduleKind::gpipe && shape.kind != ScheduleKind::one_f_one_b))
      return;
    const double p = shape.stages;
    const double m = shape.microbatches;
    for (const double weight : {0.0, 2.0, 3.0, 40.0}) {
      const Simulation result = price(shape, {.backward_weight = weight});
      EXPECT_EQ(result.idle_share, (p - 1) / (m + p - 1)) << shape;
      EXPECT_EQ(result.window, (m + p - 1) * (4 + weight)) << shape;
      EXPECT_EQ(result.events.back().end, result.window) << shape;
      for (const double busy : result.busy)
        EXPECT_EQ(busy, m * (4 + weight)) << shape;
    }
  });
}

TEST(PipelineSimulator, SequentialKeepsOneStageBusy) {
  for_each_shape([](const PipelineShape& shape) {
    if (shape.kind == ScheduleKind::sequential && shape.chunks != 3) {  // thirds of a second are not exact
      EXPECT_EQ(price(shape).idle_share, (shape.stages - 1.0) / shape.stages) << shape;
    }
  });
}

// ZB-H1 on equal F, B and W leaves p - 1 of them idle, 1F1B 3 (p - 1); fewer micro-batches than stages leave more.
TEST(PipelineSimulator, ZeroBubbleIdlesLessThanOneForwardOneBackward) {
  for_each_shape([](PipelineShape shape) {
    if (shape.kind != ScheduleKind::zero_bubble)
      return;
    const Simulation zero_bubble = price(shape);
    const double p = shape.stages;
    const double m = shape.microbatches;
    if (m >= p) {
      EXPECT_EQ(zero_bubble.window, 2 * (3 * m + p - 1)) << shape;
    }
    if (m == 1) {
      EXPECT_EQ(zero_bubble.window, 2 * (2 * p + 1)) << shape;
    }
    shape.kind = ScheduleKind::one_f_one_b;
    const Simulation fused = price(shape);
    if (shape.stages > 1)
      EXPECT_LT(zero_bubble.idle_share, fused.idle_share) << shape;
    else
      EXPECT_EQ(zero_bubble.idle_share, 0) << shape;
  });
}

TEST(PipelineSimulator, ZeroBubbleHelpsForUnequalPartsToo) {
  for (const int stages : {2, 4, 8})
    for (const int microbatches : {1, 2, 4, 8, 16})
      for (const double input : {1.0, 2.0, 3.0})
        for (const double weight : {1.0, 2.0, 3.0}) {
          const Costs seconds{.backward_input = input, .backward_weight = weight};
          const PipelineShape shape{.kind = ScheduleKind::zero_bubble, .stages = stages, .microbatches = microbatches};
          PipelineShape fused = shape;
          fused.kind = ScheduleKind::one_f_one_b;
          EXPECT_LT(price(shape, seconds).idle_share, price(fused, seconds).idle_share)
              << shape << ", input " << input << ", weight " << weight;
        }
}

TEST(PipelineSimulator, InterleavedIdlesLessThanOneForwardOneBackward) {
  for_each_shape([](PipelineShape shape) {
    if (shape.kind != ScheduleKind::interleaved || shape.stages < 2 || shape.microbatches < shape.stages)
      return;
    const double p = shape.stages;
    const double m = shape.microbatches;
    const double v = shape.chunks;
    const Simulation interleaved = price(shape);
    if (shape.microbatches % shape.stages == 0) {
      EXPECT_NEAR(interleaved.idle_share, (p - 1) / (m * v + p - 1), 1e-12) << shape;
    }
    EXPECT_LT(interleaved.idle_share, (p - 1) / (m + p - 1)) << shape;
  });
}

// One micro-batch there and back: three messages of 5 s between works of 2, and 4 s.
TEST(PipelineSimulator, MessagesTakeTheirTime) {
  const PipelineShape shape{.stages = 2, .microbatches = 1};
  const auto lists = make_schedules(shape);
  const Simulation result = simulate(lists, costs({.message = 5, .step = 1}));
  EXPECT_EQ(result.window, 2 + 5 + 2 + 4 + 5 + 4);
  EXPECT_EQ(result.events.back().end, result.window + 3);  // reduce, tied_reduce, optimizer
  EXPECT_EQ(result.busy, (std::vector<double>{6, 6}));
  EXPECT_EQ(text(lists[1][0]), "recv F0 from stage 0");
  EXPECT_EQ(event_of(result, 1, 0).start, 7);
  EXPECT_EQ(event_of(result, 1, 0).end, 7);
  EXPECT_EQ(event_of(result, 1, 1).end, 9);
}

// A sender goes on at once: with messages as long as the work the last stage is still never short of any.
TEST(PipelineSimulator, SendsGoOnInTheBackground) {
  const PipelineShape shape{.kind = ScheduleKind::gpipe, .stages = 2, .microbatches = 4};
  const Simulation result = price(shape, {.message = 2});
  EXPECT_EQ(result.window, 2 + 2 + 4 * 2 + 4 + 2 + 4 * 4);
}

TEST(PipelineSimulator, CollectivesOfThePipelineWaitForAllStages) {
  const PipelineShape shape{.stages = 3, .microbatches = 1};
  const auto lists = make_schedules(shape);
  const Simulation result = simulate(lists, costs({.step = 1}));
  for (std::size_t stage = 0; stage < lists.size(); ++stage) {
    EXPECT_EQ(text(lists[stage].back()), "optimizer");
    EXPECT_EQ(event_of(result, stage, lists[stage].size() - 1).start, result.window + 2);
  }
}

// Rank by rank and as one sequence: what train --dry-run --events prints.
TEST(PipelineSimulator, EventsOfTwoStagesAndTwoMicrobatches) {
  const auto lists = make_schedules({.kind = ScheduleKind::one_f_one_b, .stages = 2, .microbatches = 2});
  std::vector<std::string> lines;
  for (const ScheduleEvent& event :
       simulate(lists, costs({.forward = 1, .backward_input = 1, .backward_weight = 1, .step = 1})).events)
    lines.push_back(std::to_string(static_cast<int>(event.start)) + " " + std::to_string(event.rank) + " " +
                    text(lists[static_cast<std::size_t>(event.rank)][event.index]));
  EXPECT_EQ(lines, (std::vector<std::string>{"0 0 F0",
                                             "1 0 send F0 to stage 1",
                                             "1 0 F1",
                                             "1 1 recv F0 from stage 0",
                                             "1 1 F0",
                                             "2 0 send F1 to stage 1",
                                             "2 1 B0",
                                             "4 1 send B0 to stage 0",
                                             "4 0 recv B0 from stage 1",
                                             "4 0 B0",
                                             "4 1 recv F1 from stage 0",
                                             "4 1 F1",
                                             "5 1 B1",
                                             "7 1 send B1 to stage 0",
                                             "7 0 recv B1 from stage 1",
                                             "7 0 B1",
                                             "7 1 reduce",
                                             "9 0 reduce",
                                             "10 0 tied_reduce",
                                             "10 1 tied_reduce",
                                             "11 0 optimizer",
                                             "11 1 optimizer"}));
}

TEST(PipelineSimulator, EventsAreInOrderAndNoEffectComesBeforeItsCause) {
  for_each_shape([](const PipelineShape& shape) {
    if (shape.stages > 8 || shape.microbatches > 9)
      return;
    const auto lists = make_schedules(shape);
    const Simulation result = simulate(lists, costs({}));
    std::vector<std::size_t> next(lists.size(), 0);
    std::vector<std::string> sent;
    double clock = 0;
    std::size_t count = 0;
    for (const ScheduleEvent& event : result.events) {
      const auto rank = static_cast<std::size_t>(event.rank);
      ASSERT_EQ(event.index, next[rank]++) << shape;
      ASSERT_GE(event.start, clock) << shape;
      clock = event.start;
      const Operation& operation = lists[rank][event.index];
      const auto message = [&](int from, int to) {
        return std::to_string(from) +
               to_string(operation.kind == OperationKind::receive_activations ? OperationKind::send_activations
                         : operation.kind == OperationKind::receive_gradients ? OperationKind::send_gradients
                                                                              : operation.kind) +
               std::to_string(to) + " " + std::to_string(operation.microbatch);
      };
      if (is_send(operation.kind))
        sent.push_back(message(event.rank, operation.peer));
      if (is_receive(operation.kind)) {
        const auto cause = std::find(sent.begin(), sent.end(), message(operation.peer, event.rank));
        ASSERT_NE(cause, sent.end()) << shape;
        sent.erase(cause);
      }
      ++count;
    }
    std::size_t all = 0;
    for (const PipelineSchedule& list : lists)
      all += list.size();
    ASSERT_EQ(count, all) << shape;
    ASSERT_TRUE(sent.empty()) << shape;
  });
}

}  // namespace
}  // namespace espalier
