// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>

#include "core/error.hpp"
#include "planning/plan_text.hpp"
#include "planning/scaling.hpp"
#include "planning/search.hpp"
#include "tests/planning/problems.hpp"

using namespace espalier;
using espalier::test::layout_of;
using espalier::test::problem_of;

namespace {

TEST(Search, ranks_what_fits_by_time) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  const SearchResult result = search_layouts(problem, {.num_devices = 32, .global_batch = 128});
  ASSERT_GT(result.ranking.size(), 3u);
  for (std::size_t i = 0; i < result.ranking.size(); ++i) {
    EXPECT_EQ(why_impossible(problem, result.ranking[i].layout), "");
    EXPECT_EQ(why_too_large(problem, result.ranking[i]), "");
    EXPECT_EQ(result.ranking[i].layout.num_devices(), 32);
    if (i > 0) {
      EXPECT_LE(result.ranking[i - 1].step_seconds, result.ranking[i].step_seconds * 1.0002);
    }
  }
  EXPECT_GT(result.num_too_large, 0u);
  EXPECT_EQ(search_layouts(problem, {.num_devices = 32, .global_batch = 128}).ranking.front().layout.text(),
            result.ranking.front().layout.text());
}

// The best of the ranking against all layouts of a small space, each simulated.
TEST(Search, finds_the_best_of_the_whole_space) {
  const PlanProblem problem = problem_of("gpt2-1558m", "a100-80:1", 1024);
  const LayoutSpace space{.num_devices = 8, .global_batch = 64};
  const SearchResult result = search_layouts(problem, space);
  double best = 1e9;
  for (const PlanLayout& layout : enumerate_layouts(problem, space)) {
    if (!why_impossible(problem, layout).empty())
      continue;
    const LayoutPrice price = price_layout(problem, layout);
    if (why_too_large(problem, price).empty())
      best = std::min(best, price.step_seconds);
  }
  EXPECT_NEAR(result.ranking.front().step_seconds / best, 1, 0.005);
}

TEST(Search, a_trillion_parameters_on_16384_devices_take_seconds) {
  const PlanProblem problem = problem_of("gpt-1t", "a100-80:2048");
  const auto start = std::chrono::steady_clock::now();
  const SearchResult result = search_layouts(problem, {.num_devices = 16384, .global_batch = 4096});
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(seconds, 10);
  ASSERT_FALSE(result.ranking.empty());
  EXPECT_GT(result.num_considered, 1000u);
  EXPECT_LE(result.ranking.front().layout.tensor, 16);
}

TEST(Search, fixed_choices_hold) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  LayoutSpace space{.num_devices = 32, .global_batch = 128};
  fix_choices(space, "tensor=4,pipeline=2");
  const SearchResult result = search_layouts(problem, space);
  ASSERT_FALSE(result.ranking.empty());
  for (const LayoutPrice& price : result.ranking) {
    EXPECT_EQ(price.layout.tensor, 4);
    EXPECT_EQ(price.layout.pipeline, 2);
  }
}

TEST(Search, rejections_have_reasons) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  LayoutSpace space{.num_devices = 32, .global_batch = 128};
  space.zero_stage = 0;
  const SearchResult result = search_layouts(problem, space);
  bool slower = false;
  bool too_large = false;
  for (const Rejection& rejection : result.rejections) {
    EXPECT_FALSE(rejection.reason.empty());
    slower = slower || (rejection.verdict == Verdict::slower && rejection.reason.starts_with("slower by"));
    too_large =
        too_large || (rejection.verdict == Verdict::too_large && rejection.reason.starts_with("does not fit: stage"));
  }
  EXPECT_TRUE(slower);
  EXPECT_TRUE(too_large);
}

// Of the two layouts, not of the phase alone: products of the same size are not called smaller.
TEST(Search, causes_are_told_from_both_layouts) {
  const auto reason = [](const PlanProblem& problem, const std::string& slow, const std::string& best) {
    return why_slower(problem, price_layout(problem, layout_of(slow.c_str(), 64)),
                      price_layout(problem, layout_of(best.c_str(), 64)));
  };
  const PlanProblem nodes = problem_of("gpt2-124m", "cpu:8", 1024);
  const std::string best = "data=8,precision=fp32,micro_batch=8";
  const std::string small = reason(nodes, "data=8,precision=fp32,micro_batch=1", best);
  EXPECT_NE(small.find("smaller products (micro-batch 1 instead of 8)"), std::string::npos) << small;
  EXPECT_EQ(reason(nodes, best, best).find("as fast ("), 0u);
  const PlanProblem large = problem_of("gpt-200b", "a100-40:64");
  const std::string deep = reason(large, "tensor=4,pipeline=64,schedule=zero_bubble", "tensor=4,pipeline=16");
  EXPECT_EQ(deep.find("smaller products"), std::string::npos) << deep;
}

TEST(Search, plain_ideas_are_rejected_for_what_they_are) {
  const auto reasons = [](const PlanProblem& problem, const LayoutSpace& space, const char* best) {
    std::string text;
    const LayoutPrice price = price_layout(problem, layout_of(best, space.global_batch));
    for (const PlainRejection& each : plain_rejections(problem, space, price))
      text += each.name + ": " + each.rejection.reason + "\n";
    return text;
  };
  const PlanProblem small = problem_of("gpt2-124m", "a100-80:1", 1024);
  EXPECT_EQ(reasons(small, {.num_devices = 1, .global_batch = 1}, "data=1"), "");
  const std::string chosen = reasons(small, {.num_devices = 8, .global_batch = 8}, "data=8");
  EXPECT_EQ(chosen.find("data parallelism alone"), std::string::npos) << chosen;
  const std::string faster = reasons(small, {.num_devices = 8, .global_batch = 8}, "tensor=4,pipeline=2");
  EXPECT_EQ(faster.find("data parallelism alone: faster by "), 0u) << faster;
  EXPECT_NE(faster.find("but outside of what was searched"), std::string::npos) << faster;
  EXPECT_NE(faster.find("but train has no ZeRO-3"), std::string::npos) << faster;
  EXPECT_EQ(faster.find("slower by -"), std::string::npos) << faster;
  const std::string fewer = reasons(problem_of("gpt-22b", "h100:64"), {.num_devices = 512, .global_batch = 256},
                                    "tensor=4,data=128,pipeline=1");
  EXPECT_EQ(fewer.find("data parallelism alone: micro-batch 1 x data 512 does not divide the global batch of 256"), 0u)
      << fewer;
  // An idea is rejected for what is best about it, not for choices that nobody would make with it.
  const LayoutSpace many{.num_devices = 512, .global_batch = 1024};
  const std::string large = reasons(problem_of("gpt-200b", "a100-40:64"), many, "tensor=8,pipeline=16,data=4");
  EXPECT_NE(large.find("data parallelism with ZeRO-3: "), std::string::npos) << large;
  EXPECT_EQ(large.find("ZeRO-3: does not fit"), std::string::npos) << large << "it fits where blocks are recomputed";
  const std::string zero = reasons(small, {.num_devices = 8, .global_batch = 64}, "data=8,zero=3,micro_batch=4");
  EXPECT_EQ(zero.find("with ZeRO-3"), std::string::npos) << zero << "is what was chosen";
  EXPECT_NE(zero.find("data parallelism alone"), std::string::npos) << zero;
}

// Goals that nothing reaches: the error says which is the nearest that can be.
TEST(Search, unreachable_goals_name_the_nearest) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  const SearchResult result = search_layouts(problem, {.num_devices = 32, .global_batch = 128});
  EXPECT_NO_THROW(require_goal(problem, result, {}));
  try {
    require_goal(problem, result, {.most_step_seconds = 0.001, .least_tokens_per_second = {}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(error.report().wanted.find(result.ranking.front().layout.text()), std::string::npos);
  }
  EXPECT_THROW(require_goal(problem, result, {.most_step_seconds = {}, .least_tokens_per_second = 1e15}), Error);
  const PlanProblem small = problem_of("gpt-1t", "a100-40:1");
  const SearchResult nothing = search_layouts(small, {.num_devices = 8, .global_batch = 8});
  try {
    require_goal(small, nothing, {});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.report().got.find("the least hungry of"), std::string::npos);
  }
}

TEST(Scaling, efficiency_falls_and_the_cause_is_named) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:1");
  const auto points = predict_scaling(problem, {.num_devices = 8, .global_batch = 256}, {8, 64, 256}, false);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_DOUBLE_EQ(points[0].efficiency, 1);
  EXPECT_EQ(points[0].what_bends, "nothing");
  EXPECT_LT(points[2].efficiency, points[1].efficiency);
  EXPECT_LT(points[2].price->step_seconds, points[1].price->step_seconds);
  EXPECT_NE(points[2].what_bends.find("% of the step, was"), std::string::npos);
  const auto weak = predict_scaling(problem, {.num_devices = 8, .global_batch = 256}, {8, 64, 256}, true);
  EXPECT_EQ(weak[2].global_batch, 256 * 32);
  EXPECT_GT(weak[2].efficiency, points[2].efficiency);
}

// What counts is what a sequence costs more, not whose share of the step grows.
TEST(Scaling, the_bend_is_where_device_seconds_grow) {
  const auto point = [](double forward, double backward, double bubble, double other) {
    LayoutPrice price;
    price[PlanPhase::forward] = forward;
    price[PlanPhase::backward] = backward;
    price[PlanPhase::bubble] = bubble;
    price[PlanPhase::other] = other;
    price.step_seconds = forward + backward + bubble + other;
    return ScalePoint{.num_devices = 8, .global_batch = 64, .price = price, .what_bends = {}};
  };
  EXPECT_EQ(what_bends(point(300, 0, 0, 200), point(360, 0, 30, 200)),
            "forward: 67 % of what is lost (61.0 % of the step, was 60.0 %)");
  EXPECT_EQ(what_bends(point(30, 60, 0, 10), point(37, 74, 0, 12)),
            "backward: 61 % of what is lost (60.2 % of the step, was 60.0 %)");
  ScalePoint twice = point(30, 60, 0, 10);  // a step as long on twice the devices: half of each second is lost
  twice.num_devices = 16;
  EXPECT_EQ(what_bends(point(30, 60, 0, 10), twice), "backward: 60 % of what is lost (60.0 % of the step, was 60.0 %)");
  twice.global_batch = 128;
  EXPECT_EQ(what_bends(point(30, 60, 0, 10), twice), "nothing");
}

TEST(Scaling, points_without_a_layout_say_so) {
  const auto points =
      predict_scaling(problem_of("gpt-1t", "a100-40:1"), {.num_devices = 8, .global_batch = 64}, {8, 4096}, false);
  EXPECT_FALSE(points[0].price);
  EXPECT_EQ(points[0].what_bends, "no layout fits");
}

// A file of `bench machine` on one host says nothing of a network.
TEST(Scaling, beyond_a_node_needs_a_network) {
  PlanProblem problem = problem_of("gpt2-124m", "a100-80:1x2", 1024);
  problem.cluster.network = {};
  EXPECT_EQ(predict_scaling(problem, {.num_devices = 2, .global_batch = 64}, {1, 2}, false).size(), 2u);
  try {
    predict_scaling(problem, {.num_devices = 2, .global_batch = 64}, {2, 8}, false);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_NE(error.report().got.find("4 nodes of 2; network_link.bandwidth is missing"), std::string::npos)
        << error.report().got;
  }
}

TEST(Scaling, one_layout_for_several_machines_loses_little_on_each) {
  std::vector<PlanProblem> problems{problem_of("gpt-22b", "a100-80:4"), problem_of("gpt-22b", "h100:4")};
  const CommonLayout common = search_common_layout(problems, {.num_devices = 32, .global_batch = 128});
  ASSERT_TRUE(common.layout);
  for (std::size_t i = 0; i < problems.size(); ++i) {
    EXPECT_EQ(why_too_large(problems[i], common.prices[i]), "");
    EXPECT_GT(common.loss(i), -0.02);
    EXPECT_LT(common.loss(i), 0.2);
  }
  EXPECT_NE(common_layout_text(problems, common).find("best for all: "), std::string::npos);
}

}  // namespace
