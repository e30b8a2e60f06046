// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "parallel/schedule/pipeline_schedule.hpp"
#include "planning/pipeline_time.hpp"

using namespace espalier;

namespace {

PipelineCosts equal_stages(ScheduleKind schedule, int stages, int chunks, Index microbatches) {
  PipelineCosts costs{.schedule = schedule, .microbatches = microbatches, .chunks = {}};
  const double share = 1.0 / chunks;
  costs.chunks.assign(static_cast<std::size_t>(stages),
                      std::vector<ChunkSeconds>(static_cast<std::size_t>(chunks),
                                                {.forward = share, .backward_input = share, .backward_weight = share}));
  return costs;
}

constexpr Index unlimited = Index{1} << 40;

// (p - 1)/m of the ideal time for 1F1B and GPipe, (p - 1)/(v m) for v chunks [Narayanan et al. 2021, 2.2]; a third of
// it for ZB-H1 where forward and both parts of backward are equal [Qi et al. 2023].
TEST(PlanPipeline, simulated_bubbles_are_the_closed_forms) {
  for (const int p : {2, 4, 8}) {
    const Index m = Index{4} * p;
    const auto bubble = [&](ScheduleKind schedule, int chunks) {
      const PipelineTime time = pipeline_time(equal_stages(schedule, p, chunks, m), unlimited);
      return (time.window - time.busiest) / time.busiest;
    };
    const double ideal = (p - 1.0) / static_cast<double>(m);
    EXPECT_NEAR(bubble(ScheduleKind::one_f_one_b, 1), ideal, 1e-9) << p;
    EXPECT_NEAR(bubble(ScheduleKind::gpipe, 1), ideal, 1e-9) << p;
    EXPECT_NEAR(bubble(ScheduleKind::interleaved, 2), ideal / 2, 1e-9) << p;
    EXPECT_NEAR(bubble(ScheduleKind::interleaved, 4), ideal / 4, 1e-9) << p;
    EXPECT_NEAR(bubble(ScheduleKind::zero_bubble, 1), ideal / 3, 1e-9) << p;
    EXPECT_NEAR(bubble(ScheduleKind::sequential, 1), p - 1.0, 1e-9) << p;
  }
}

TEST(PlanPipeline, the_estimate_equals_the_simulation_where_messages_are_free) {
  for (const ScheduleKind schedule : {ScheduleKind::one_f_one_b, ScheduleKind::gpipe, ScheduleKind::zero_bubble})
    EXPECT_NEAR(estimate_pipeline_time(equal_stages(schedule, 8, 1, 32)).window,
                pipeline_time(equal_stages(schedule, 8, 1, 32), unlimited).window, 1e-9)
        << to_string(schedule);
}

// A list that is cut gives what the whole one gives: uneven stages, slow messages, all schedules with lists.
TEST(PlanPipeline, cut_lists_give_the_time_of_whole_ones) {
  for (const auto& [schedule, chunks] :
       {std::pair(ScheduleKind::one_f_one_b, 1), std::pair(ScheduleKind::zero_bubble, 1),
        std::pair(ScheduleKind::interleaved, 2), std::pair(ScheduleKind::gpipe, 1)})
    for (const Index m : {48, 64, 120}) {
      PipelineCosts costs = equal_stages(schedule, 8, chunks, m);
      costs.message = 0.05;
      costs.chunks[3][0].forward *= 1.2;
      costs.chunks[7].back().backward_input *= 1.3;
      const double whole = pipeline_time(costs, unlimited).window;
      EXPECT_NEAR(pipeline_time(costs, 1).window / whole, 1, 1e-6) << to_string(schedule) << " " << m;
    }
}

// Lists of hundreds of stages with chunks are too long even when they are cut: millions of operations a layout.
TEST(PlanPipeline, of_very_long_pipelines_the_closed_form_stands) {
  for (const auto& [stages, chunks] : {std::pair(512, 8), std::pair(512, 2)})
    for (const Index m : {Index{1024}, Index{8192}}) {
      PipelineCosts costs = equal_stages(ScheduleKind::interleaved, stages, chunks, m);
      costs.message = 0.05;
      EXPECT_EQ(pipeline_time(costs).window, estimate_pipeline_time(costs).window) << stages << " " << chunks;
    }
  PipelineCosts shorter = equal_stages(ScheduleKind::interleaved, 64, 8, 4096);
  shorter.message = 0.05;
  EXPECT_NE(pipeline_time(shorter).window, estimate_pipeline_time(shorter).window);
}

TEST(PlanPipeline, messages_cost_time_and_never_save_any) {
  double before = 0;
  for (const double message : {0.0, 0.01, 0.1, 1.0}) {
    PipelineCosts costs = equal_stages(ScheduleKind::one_f_one_b, 4, 1, 16);
    costs.message = message;
    const double window = pipeline_time(costs).window;
    EXPECT_GE(window, before);
    EXPECT_GE(window, 6 * message);
    before = window;
  }
}

TEST(PlanPipeline, one_stage_never_waits) {
  const PipelineTime time = pipeline_time(equal_stages(ScheduleKind::one_f_one_b, 1, 1, 7));
  EXPECT_DOUBLE_EQ(time.window, 21);
  EXPECT_NEAR(time.idle_share, 0, 1e-12);
}

TEST(PlanPipeline, the_busiest_stage_is_named) {
  PipelineCosts costs = equal_stages(ScheduleKind::one_f_one_b, 4, 1, 8);
  costs.chunks[2][0].forward = 2;
  EXPECT_EQ(pipeline_time(costs).busiest_stage, 2);
  EXPECT_DOUBLE_EQ(pipeline_time(costs).busiest, 32);
}

}  // namespace
