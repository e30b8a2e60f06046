// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "planning/memo.hpp"
#include "planning/plan_text.hpp"
#include "tests/planning/problems.hpp"

// The questions that the planner was asked first: decision and reasons. examples/plan has their commands and memos.
// The fourth is one to `diagnose`: test_compare_runs.cpp, and rehearsed in tests/app/test_rehearse.sh.

using namespace espalier;
using espalier::test::layout_of;
using espalier::test::problem_of;

namespace {

// 200 billion parameters, devices of 40 GB, two proposals: data parallelism alone, and a hybrid.
TEST(Scenario, a_200b_needs_a_hybrid) {
  const PlanProblem problem = problem_of("gpt-200b", "a100-40:64");
  EXPECT_NEAR(num_parameters(problem.model), 200e9, 5e9);
  const PlanLayout replicas = layout_of("data=512", 1024);
  const PlanLayout hybrid = layout_of("data=4,tensor=8,pipeline=16,recompute=full,zero=1,sequence_parallel=1", 1024);
  const std::string reason = why_too_large(problem, price_layout(problem, replicas));
  EXPECT_NE(reason.find("does not fit: stage 0 needs 3.3"), std::string::npos) << reason;  // TiB: 18 bytes a parameter
  EXPECT_NE(reason.find("optimizer"), std::string::npos) << reason;
  EXPECT_EQ(why_too_large(problem, price_layout(problem, hybrid)), "");
  const std::string text = comparison_text(problem, {replicas, hybrid});
  EXPECT_NE(text.find("does not fit"), std::string::npos);
  EXPECT_NE(text.find("the fastest of these that fits"), std::string::npos);
  // ZeRO alone does not save the first proposal where the batch must stay: gathering is paid for every micro-batch.
  const SearchResult result = search_layouts(problem, {.num_devices = 512, .global_batch = 1024});
  ASSERT_FALSE(result.ranking.empty());
  EXPECT_GT(result.ranking.front().layout.tensor * result.ranking.front().layout.pipeline, 4);
}

// A model too large for one device, 32 of them on 4 nodes; from 8 to 32 the speed must grow almost in proportion.
TEST(Scenario, b_32_devices_scale_almost_linearly) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  const LayoutSpace space{.num_devices = 32, .global_batch = 512};
  EXPECT_NE(why_too_large(problem, price_layout(problem, layout_of("data=32", 512))), "");
  const SearchResult result = search_layouts(problem, space);
  ASSERT_FALSE(result.ranking.empty());
  const PlanLayout& best = result.ranking.front().layout;
  EXPECT_LE(best.tensor, 8);  // inside a node
  const std::vector<ScalePoint> points = predict_scaling(problem, space, {8, 16, 32}, false);
  ASSERT_TRUE(points[0].price && points[1].price && points[2].price);
  EXPECT_GT(points[2].efficiency, 0.9);
  const std::string text = memo(problem, space, result, points);
  EXPECT_NE(text.find("## Scaling"), std::string::npos);
  EXPECT_NE(text.find("| 32 | 512 |"), std::string::npos);
}

// 30B on 8 x 80 GB: data parallelism runs out of memory, four stages without micro-batches idle, fp16 diverges.
TEST(Scenario, c_one_redesign_answers_three_failures) {
  const PlanProblem problem = problem_of("gpt-30b", "a100-80");
  const Index batch = 256;
  const std::string memory = why_too_large(problem, price_layout(problem, layout_of("data=8", batch)));
  EXPECT_NE(memory.find("does not fit"), std::string::npos);
  PlanLayout naive = layout_of("tensor=2,pipeline=4,recompute=full", batch);
  naive.micro_batch = batch;
  const LayoutPrice idle = price_layout(problem, naive);
  EXPECT_NEAR(idle.idle_share, 0.75, 0.02);  // (p - 1)/(m + p - 1) of 4 stages and one micro-batch
  const SearchResult result = search_layouts(problem, {.num_devices = 8, .global_batch = batch});
  ASSERT_FALSE(result.ranking.empty());
  const LayoutPrice& best = result.ranking.front();
  EXPECT_EQ(best.layout.precision, Precision::bf16);
  EXPECT_LT(best.idle_share, 0.1);
  EXPECT_LT(best.step_seconds, idle.step_seconds / 2);
  EXPECT_EQ(why_too_large(problem, best), "");
  const std::string text = memo(problem, {.num_devices = 8, .global_batch = batch}, result, {});
  EXPECT_NE(text.find("bf16 has the range of fp32, so no loss scaling is needed"), std::string::npos);
  EXPECT_NE(text.find("Not data parallelism alone: does not fit"), std::string::npos);
}

}  // namespace
