// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "parallel/schedule/pipeline_schedule.hpp"
#include "tests/parallel/schedule_shapes.hpp"

namespace espalier {
namespace {

using Texts = std::vector<std::string>;

Texts texts(const PipelineSchedule& list) {
  Texts lines;
  for (const Operation& operation : list)
    lines.push_back(fmt::format("{}{}", text(operation), operation.reduces ? "!" : ""));
  return lines;
}

Texts work_of_stages(const PipelineShape& shape) {
  Texts lines;
  for (const PipelineSchedule& list : make_schedules(shape))
    lines.push_back(work(list, shape.chunks > 1));
  return lines;
}

TEST(PipelineSchedule, OneStageHasNoMessages) {
  EXPECT_EQ(texts(make_schedule({.kind = ScheduleKind::one_f_one_b, .microbatches = 2}, 0)),
            (Texts{"F0", "B0", "F1", "B1!", "reduce", "optimizer"}));
  EXPECT_EQ(texts(make_schedule({.microbatches = 1, .gathers_weights = true}, 0)),
            (Texts{"F0", "B0!", "reduce", "optimizer", "gather_weights"}));
}

TEST(PipelineSchedule, TwoStagesTwoMicrobatches) {
  const PipelineShape shape{.kind = ScheduleKind::one_f_one_b, .stages = 2, .microbatches = 2};
  EXPECT_EQ(texts(make_schedule(shape, 0)),
            (Texts{"F0", "send F0 to stage 1", "F1", "send F1 to stage 1", "recv B0 from stage 1", "B0",
                   "recv B1 from stage 1", "B1!", "reduce", "tied_reduce", "optimizer"}));
  EXPECT_EQ(texts(make_schedule(shape, 1)),
            (Texts{"recv F0 from stage 0", "F0", "B0", "send B0 to stage 0", "recv F1 from stage 0", "F1", "B1!",
                   "send B1 to stage 0", "reduce", "tied_reduce", "optimizer"}));
}

TEST(PipelineSchedule, MiddleStagesHaveNoTiedReduce) {
  EXPECT_EQ(texts(make_schedule({.stages = 3, .microbatches = 1}, 1)),
            (Texts{"recv F0 from stage 0", "F0", "send F0 to stage 2", "recv B0 from stage 2", "B0!",
                   "send B0 to stage 0", "reduce", "optimizer"}));
}

TEST(PipelineSchedule, ZeroBubbleTwoStagesTwoMicrobatches) {
  const PipelineShape shape{.kind = ScheduleKind::zero_bubble, .stages = 2, .microbatches = 2};
  EXPECT_EQ(texts(make_schedule(shape, 0)),
            (Texts{"F0", "send F0 to stage 1", "F1", "send F1 to stage 1", "recv B0 from stage 1", "Bi0", "W0",
                   "recv B1 from stage 1", "Bi1", "W1!", "reduce", "tied_reduce", "optimizer"}));
  EXPECT_EQ(texts(make_schedule(shape, 1)),
            (Texts{"recv F0 from stage 0", "F0", "Bi0", "send B0 to stage 0", "recv F1 from stage 0", "F1", "Bi1",
                   "send B1 to stage 0", "W0", "W1!", "reduce", "tied_reduce", "optimizer"}));
}

// Chunk 0 of stage 1 feeds chunk 1 of stage 0: the parts of the model go round the stages.
TEST(PipelineSchedule, ChunksGoRoundTheStages) {
  PipelineSchedule list = make_schedule({.kind = ScheduleKind::sequential, .stages = 2, .chunks = 2}, 1);
  Texts lines;
  for (const Operation& operation : list)
    lines.push_back(text(operation, true));
  EXPECT_EQ(lines, (Texts{"recv F0.0 from stage 0", "F0.0", "send F0.0 to stage 0", "recv F0.1 from stage 0", "F0.1",
                          "B0.1", "send B0.1 to stage 0", "recv B0.0 from stage 0", "B0.0", "send B0.0 to stage 0",
                          "reduce chunk 1", "reduce chunk 0", "tied_reduce", "optimizer"}));
}

TEST(PipelineSchedule, Sequential) {
  EXPECT_EQ(work_of_stages({.kind = ScheduleKind::sequential, .stages = 2, .microbatches = 3}),
            (Texts{"F0 B0 F1 B1 F2 B2!", "F0 B0 F1 B1 F2 B2!"}));
}

TEST(PipelineSchedule, Gpipe) {
  EXPECT_EQ(work_of_stages({.kind = ScheduleKind::gpipe, .stages = 2, .microbatches = 3}),
            (Texts{"F0 F1 F2 B0 B1 B2!", "F0 F1 F2 B0 B1 B2!"}));
  EXPECT_EQ(work_of_stages({.kind = ScheduleKind::gpipe, .stages = 1, .chunks = 2, .microbatches = 2}),
            (Texts{"F0.0 F1.0 F0.1 F1.1 B0.1 B1.1! B0.0 B1.0!"}));
}

TEST(PipelineSchedule, OneForwardOneBackward) {
  EXPECT_EQ(
      work_of_stages({.kind = ScheduleKind::one_f_one_b, .stages = 4, .microbatches = 8}),
      (Texts{"F0 F1 F2 F3 B0 F4 B1 F5 B2 F6 B3 F7 B4 B5 B6 B7!", "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7!",
             "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 B7!", "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7!"}));
  EXPECT_EQ(work_of_stages({.kind = ScheduleKind::one_f_one_b, .stages = 4, .microbatches = 2}),
            (Texts{"F0 F1 B0 B1!", "F0 F1 B0 B1!", "F0 F1 B0 B1!", "F0 B0 F1 B1!"}));
}

TEST(PipelineSchedule, ZeroBubble) {
  EXPECT_EQ(
      work_of_stages({.kind = ScheduleKind::zero_bubble, .stages = 4, .microbatches = 5}),
      (Texts{"F0 F1 F2 F3 Bi0 W0 F4 Bi1 W1 Bi2 W2 Bi3 W3 Bi4 W4!", "F0 F1 F2 Bi0 F3 Bi1 W0 F4 Bi2 W1 Bi3 W2 Bi4 W3 W4!",
             "F0 F1 Bi0 F2 Bi1 F3 Bi2 W0 F4 Bi3 W1 Bi4 W2 W3 W4!",
             "F0 Bi0 F1 Bi1 F2 Bi2 F3 Bi3 W0 F4 Bi4 W1 W2 W3 W4!"}));
}

// The order of figure 4 of Narayanan et al. (2021), on two stages.
TEST(PipelineSchedule, Interleaved) {
  EXPECT_EQ(work_of_stages({.kind = ScheduleKind::interleaved, .stages = 2, .chunks = 2, .microbatches = 4}),
            (Texts{"F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1! B2.0 B3.0!",
                   "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1! B2.0 B3.0!"}));
}

// Three micro-batches on two stages are one group: all of chunk 0, then all of chunk 1.
TEST(PipelineSchedule, InterleavedWhereStagesDoNotDivideTheMicrobatches) {
  EXPECT_EQ(work_of_stages({.kind = ScheduleKind::interleaved, .stages = 2, .chunks = 2, .microbatches = 3}),
            (Texts{"F0.0 F1.0 F2.0 F0.1 F1.1 F2.1 B0.1 B1.1 B2.1! B0.0 B1.0 B2.0!",
                   "F0.0 F1.0 F2.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1! B0.0 B1.0 B2.0!"}));
}

// What the sum of the gradients depends on: the order in which a chunk's are added.
TEST(PipelineSchedule, GradientsOfAChunkAreAddedInTheOrderOfTheMicrobatches) {
  for_each_shape([](const PipelineShape& shape) {
    for (const PipelineSchedule& list : make_schedules(shape)) {
      std::map<int, int> next;
      for (const Operation& operation : list)
        if (operation.kind == OperationKind::backward || operation.kind == OperationKind::backward_weight) {
          ASSERT_EQ(operation.microbatch, next[operation.chunk]++) << shape;
          ASSERT_EQ(operation.reduces, operation.microbatch == shape.microbatches - 1) << shape;
        }
      ASSERT_EQ(next.size(), static_cast<std::size_t>(shape.chunks));
    }
  });
}

TEST(PipelineSchedule, MessagesAreNextToTheirOperation) {
  for_each_shape([](const PipelineShape& shape) {
    for (const PipelineSchedule& list : make_schedules(shape))
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].peer < 0)
          continue;
        const bool receives =
            list[i].kind == OperationKind::receive_activations || list[i].kind == OperationKind::receive_gradients;
        const Operation& operation = receives ? list[i + 1] : list.at(i - 1);
        ASSERT_TRUE(is_work(operation)) << shape;
        ASSERT_EQ(operation.chunk, list[i].chunk) << shape;
        ASSERT_EQ(operation.microbatch, list[i].microbatch) << shape;
      }
  });
}

TEST(PipelineSchedule, ActivationsInFlightAreBounded) {
  for_each_shape([](const PipelineShape& shape) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      const PipelineSchedule list = make_schedule(shape, stage);
      for (int chunk = 0; chunk < shape.chunks; ++chunk) {
        const int slots = slots_needed(list, chunk);
        const int pending = pending_weights_needed(list, chunk);
        ASSERT_LE(slots, shape.microbatches) << shape;
        switch (shape.kind) {
          case ScheduleKind::sequential: ASSERT_EQ(slots, 1) << shape; break;
          case ScheduleKind::gpipe: ASSERT_EQ(slots, shape.microbatches) << shape; break;
          case ScheduleKind::one_f_one_b:
            ASSERT_EQ(slots, std::min(shape.microbatches, shape.stages - stage)) << shape;
            break;
          case ScheduleKind::interleaved:
          case ScheduleKind::zero_bubble_2p:
          case ScheduleKind::zero_bubble_v: break;
          case ScheduleKind::zero_bubble:
            ASSERT_LE(slots, std::min(shape.microbatches, shape.stages)) << shape;
            ASSERT_EQ(pending, std::min(shape.microbatches, stage + 1)) << shape;
            break;
        }
        if (shape.kind != ScheduleKind::zero_bubble) {
          ASSERT_EQ(pending, 0) << shape;
        }
      }
    }
  });
}

// All chunks of a stage together: those of the warm-up and one more, as in Narayanan et al. where p divides m.
TEST(PipelineSchedule, InterleavedHoldsTheWarmUpAndOneMore) {
  for_each_shape([](const PipelineShape& shape) {
    if (shape.kind != ScheduleKind::interleaved || shape.microbatches % shape.stages != 0)
      return;
    for (int stage = 0; stage < shape.stages; ++stage) {
      int in_flight = 0;
      int most = 0;
      for (const Operation& operation : make_schedule(shape, stage)) {
        in_flight += operation.kind == OperationKind::forward ? 1 : 0;
        most = std::max(most, in_flight);
        in_flight -= operation.kind == OperationKind::backward ? 1 : 0;
      }
      const int warm_up = (shape.chunks - 1) * shape.stages + 2 * (shape.stages - stage - 1);
      ASSERT_EQ(most, std::min(shape.chunks * shape.microbatches, warm_up + 1)) << shape;
    }
  });
}

TEST(PipelineSchedule, Names) {
  EXPECT_EQ(schedule_kinds_with_lists().size(), 5U);
  EXPECT_THROW(make_schedule({.kind = ScheduleKind::zero_bubble_v, .stages = 2, .chunks = 2}, 0), std::logic_error);
  for (const ScheduleKind kind : all_schedule_kinds())
    EXPECT_EQ(parse_schedule_kind(to_string(kind)), kind);
  EXPECT_EQ(parse_schedule_kind("1F1B"), std::nullopt);
  EXPECT_EQ(parse_schedule_kind(""), std::nullopt);
  EXPECT_STREQ(to_string(OperationKind::receive_gradients), "receive_gradients");
}

}  // namespace
}  // namespace espalier
