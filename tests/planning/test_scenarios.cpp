// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planning/layout_limits.hpp"
#include "planning/memo.hpp"
#include "planning/plan_text.hpp"
#include "tests/planning/problems.hpp"

// The questions that the planner was asked first: decision and reasons. examples/plan has their commands and memos.
// The fourth is one to `diagnose`: test_compare_runs.cpp, and rehearsed in tests/app/test_rehearse.sh.

using namespace espalier;
using espalier::test::layout_of;
using espalier::test::problem_of;
using testing::HasSubstr;

namespace {

// 200 billion parameters, devices of 40 GB, two proposals: data parallelism alone, and a hybrid.
TEST(Scenario, a_200b_needs_a_hybrid) {
  const PlanProblem problem = problem_of("gpt-200b", "a100-40:64");
  EXPECT_NEAR(num_parameters(problem.model), 200e9, 5e9);
  const Layout replicas = layout_of("data=512", 1024);
  const Layout hybrid = layout_of("data=4,tensor=8,pipeline=16,recompute=full,zero=1,sequence_parallel=1", 1024);
  const std::string reason = why_too_large(problem, price_layout(problem, replicas));
  EXPECT_THAT(reason, HasSubstr("does not fit: stage 0 needs 3.3"));  // TiB: 18 bytes a parameter
  EXPECT_THAT(reason, HasSubstr("optimizer"));
  EXPECT_EQ(why_too_large(problem, price_layout(problem, hybrid)), "");
  const std::string text = comparison_text(problem, {replicas, hybrid});
  EXPECT_THAT(text, HasSubstr("does not fit"));
  EXPECT_THAT(text, HasSubstr("the fastest of those that fit"));
  // What `train` runs shares weights and gradients among tensor ranks and stages.
  LayoutSpace space{.num_devices = 512, .global_batch = 1024};
  space.only_runnable = true;
  const SearchResult result = search_layouts(problem, space);
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
  const Layout& best = result.ranking.front().layout;
  EXPECT_LE(best.tensor, 8);  // inside a node
  const std::vector<ScalePoint> points = predict_scaling(problem, space, {8, 16, 32}, false);
  ASSERT_TRUE(points[0].price && points[1].price && points[2].price);
  EXPECT_GT(points[2].efficiency, 0.9);
  const std::string text = memo(problem, space, result, points);
  EXPECT_THAT(text, HasSubstr("## Scaling"));
  EXPECT_THAT(text, HasSubstr("| 32 | 512 |"));
}

// 30B on 8 x 80 GB: data parallelism runs out of memory, four stages without micro-batches idle, fp16 diverges.
TEST(Scenario, c_one_redesign_answers_three_failures) {
  const PlanProblem problem = problem_of("gpt-30b", "a100-80");
  const Index batch = 256;
  const std::string memory = why_too_large(problem, price_layout(problem, layout_of("data=8", batch)));
  EXPECT_THAT(memory, HasSubstr("does not fit"));
  Layout naive = layout_of("tensor=2,pipeline=4,recompute=full", batch);
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
  EXPECT_THAT(text, HasSubstr("bf16 has the range of fp32, so no loss scaling is needed"));
  const std::size_t idea = text.find("| data parallelism alone | tensor 1 x data 8 x pipeline 1, ");
  ASSERT_NE(idea, std::string::npos) << text;
  EXPECT_THAT(text.substr(idea, text.find('\n', idea) - idea), HasSubstr(" | does not fit: stage 0 needs")) << text;
}

}  // namespace
