// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/schedule/pipeline_slots.hpp"

namespace espalier {
namespace {

TEST(PipelineSlots, are_those_of_the_lists) {
  for (const ScheduleKind kind : schedule_kinds_with_lists())
    for (const int stages : {1, 2, 3, 4, 8})
      for (const int chunks : {1, 2, 3, 5})
        for (const int m : {1, 2, 3, 4, 5, 8, 9, 16, 20})
          for (int stage = 0; stage < stages; ++stage) {
            if (!allowed_chunks(kind).has(chunks))
              continue;
            const PipelineShape shape{.kind = kind, .stages = stages, .chunks = chunks, .microbatches = m};
            SCOPED_TRACE(fmt::format("{}, stage {} of {}, {} chunks, {} micro-batches", to_string(kind), stage, stages,
                                     chunks, m));
            const PipelineSchedule list = make_schedule(shape, stage);
            const PipelineSlots slots = pipeline_slots(shape, stage);
            EXPECT_EQ(slots.together, slots_needed(list));
            ASSERT_EQ(slots.chunks.size(), static_cast<std::size_t>(chunks));
            for (int chunk = 0; chunk < chunks; ++chunk)
              EXPECT_EQ(slots.chunks[static_cast<std::size_t>(chunk)], slots_needed(list, chunk)) << "chunk " << chunk;
            EXPECT_EQ(slots.waiting_weights, pending_weights_needed(list, 0));
          }
}

// Few groups or many, of one size or two.
TEST(PipelineSlots, of_interleaved_lists_with_many_microbatches) {
  for (const int stages : {2, 3, 5, 8})
    for (const int chunks : {2, 3, 4})
      for (int m = 1; m <= 12 * stages; ++m)
        for (const int stage : {0, stages / 2, stages - 1}) {
          const PipelineShape shape{
              .kind = ScheduleKind::interleaved, .stages = stages, .chunks = chunks, .microbatches = m};
          SCOPED_TRACE(fmt::format("stage {} of {}, {} chunks, {} micro-batches", stage, stages, chunks, m));
          const PipelineSchedule list = make_schedule(shape, stage);
          const PipelineSlots slots = pipeline_slots(shape, stage);
          ASSERT_EQ(slots.together, slots_needed(list));
          for (int chunk = 0; chunk < chunks; ++chunk)
            ASSERT_EQ(slots.chunks[static_cast<std::size_t>(chunk)], slots_needed(list, chunk)) << "chunk " << chunk;
        }
}

// Narayanan et al. 2021: 1 + (p - 1)/(p v) times the activations of 1F1B on the first stage.
TEST(PipelineSlots, interleaving_holds_more_on_the_first_stage) {
  const auto together = [](ScheduleKind kind, int chunks, int stage) {
    return pipeline_slots({.kind = kind, .stages = 8, .chunks = chunks, .microbatches = 64}, stage).together;
  };
  EXPECT_NEAR(together(ScheduleKind::interleaved, 4, 0) / 4.0, 8 * (1 + 7.0 / (8 * 4)), 1e-9);
  EXPECT_EQ(together(ScheduleKind::zero_bubble_2p, 1, 3), 15);
  EXPECT_EQ(together(ScheduleKind::zero_bubble_v, 2, 3), 16);
}

}  // namespace
}  // namespace espalier
