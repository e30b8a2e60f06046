// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.hpp"
#include "planning/plan_text.hpp"
#include "planning/scaling.hpp"
#include "tests/planning/problems.hpp"

using namespace espalier;
using espalier::test::problem_of;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace {

TEST(Scaling, efficiency_falls_and_the_cause_is_named) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:1");
  const auto points = predict_scaling(problem, {.num_devices = 8, .global_batch = 256}, {8, 64, 256}, false);
  ASSERT_EQ(points.size(), 3u);
  EXPECT_DOUBLE_EQ(points[0].efficiency, 1);
  EXPECT_EQ(points[0].limited_by, "nothing");
  EXPECT_LT(points[2].efficiency, points[1].efficiency);
  EXPECT_LT(points[2].price->step_seconds, points[1].price->step_seconds);
  EXPECT_THAT(points[2].limited_by, HasSubstr("% of the step, was"));
  const auto weak = predict_scaling(problem, {.num_devices = 8, .global_batch = 256}, {8, 64, 256}, true);
  EXPECT_EQ(weak[2].global_batch, 256 * 32);
  EXPECT_GT(weak[2].efficiency, points[2].efficiency);
}

TEST(Scaling, more_than_all_is_explained) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  LayoutSpace space{.num_devices = 32, .global_batch = 512};
  space.only_runnable = true;
  const auto points = predict_scaling(problem, space, {8, 16, 32}, false);
  ASSERT_GT(points[1].efficiency, 1.01);
  EXPECT_THAT(points[1].limited_by, StartsWith("above 100 %: data_comm takes "));
  EXPECT_THAT(points[1].limited_by, HasSubstr("does not fit on 8 devices"));
  const std::string text = scaling_text(problem, points);
  for (const char* const part :
       {"9 of 10 cases", "GiB free", "                  above 100 %: data_comm takes ", "efficiency", "MFU"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(Scaling, points_that_train_cannot_run_are_marked) {
  const PlanProblem problem = problem_of("gpt-22b", "h100:4");
  LayoutSpace space{.num_devices = 8, .global_batch = 512};
  const std::string built = scaling_text(problem, predict_scaling(problem, space, {8, 16}, false));
  EXPECT_THAT(built, Not(HasSubstr("*")));
  space.precisions = {Precision::fp8};  // what is left is not built
  const std::string text = scaling_text(problem, predict_scaling(problem, space, {8, 16}, false));
  EXPECT_THAT(text, HasSubstr("fp8 *\n"));
  EXPECT_THAT(text, HasSubstr("* estimated only: train does not compute in fp8 yet"));
}

TEST(Scaling, goals_say_from_which_size_on_they_hold) {
  const auto point = [](int devices, double seconds) {
    LayoutPrice price;
    price.step_seconds = seconds;
    price.tokens_per_second = 1000 / seconds;
    return ScalePoint{.num_devices = devices, .global_batch = 64, .price = price, .limited_by = {}};
  };
  const auto text = [](const std::vector<ScalePoint>& points, double seconds) {
    return curve_goal_text(goals_on_curve(points, {.most_step_seconds = seconds, .least_tokens_per_second = {}}).at(0));
  };
  const std::vector<ScalePoint> curve{point(32, 4), point(8, 10), point(16, 6)};  // in any order
  EXPECT_EQ(text(curve, 6.5), "a step of at most 6.5 s: holds from 16 devices on");
  EXPECT_EQ(text(curve, 12), "a step of at most 12 s: holds from 8 devices on");
  EXPECT_EQ(text(curve, 3), "a step of at most 3 s: holds at none of these; the best is 4 s, on 32 devices");
  EXPECT_EQ(text({point(8, 10), point(16, 6), point(32, 11)}, 7),
            "a step of at most 7 s: holds at 16 devices, but not at every larger size");
  EXPECT_NO_THROW(
      require_goals_on_curve(goals_on_curve(curve, {.most_step_seconds = 5, .least_tokens_per_second = 200})));
  try {
    require_goals_on_curve(goals_on_curve(curve, {.most_step_seconds = 3, .least_tokens_per_second = {}}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.report().wanted, HasSubstr("4 s, on 32 devices"));
  }
}

// What counts is what a sequence costs more, not whose share of the step grows.
TEST(Scaling, the_bend_is_where_device_seconds_grow) {
  const auto point = [](double forward, double backward, double bubble, double other) {
    LayoutPrice price;
    price[Phase::forward] = forward;
    price[Phase::backward] = backward;
    price[Phase::bubble] = bubble;
    price[Phase::other] = other;
    price.step_seconds = forward + backward + bubble + other;
    return ScalePoint{.num_devices = 8, .global_batch = 64, .price = price, .limited_by = {}};
  };
  EXPECT_EQ(what_limits(point(300, 0, 0, 200), point(360, 0, 30, 200)),
            "forward: 67 % of the loss (61.0 % of the step, was 60.0 %)");
  EXPECT_EQ(what_limits(point(30, 60, 0, 10), point(37, 74, 0, 12)),
            "backward: 61 % of the loss (60.2 % of the step, was 60.0 %)");
  ScalePoint twice = point(30, 60, 0, 10);  // a step as long on twice the devices: half of each second is lost
  twice.num_devices = 16;
  EXPECT_EQ(what_limits(point(30, 60, 0, 10), twice), "backward: 60 % of the loss (60.0 % of the step, was 60.0 %)");
  twice.global_batch = 128;
  EXPECT_EQ(what_limits(point(30, 60, 0, 10), twice), "nothing");
}

TEST(Scaling, points_without_a_layout_say_so) {
  const auto points =
      predict_scaling(problem_of("gpt-1t", "a100-40:1"), {.num_devices = 8, .global_batch = 64}, {8, 4096}, false);
  EXPECT_FALSE(points[0].price);
  EXPECT_THAT(points[0].limited_by, StartsWith("no layout fits: the smallest of "));
  const auto odd = predict_scaling(problem_of("gpt2-124m", "a100-80:1", 1024), {.num_devices = 8, .global_batch = 64},
                                   {8, 13}, false);
  EXPECT_THAT(odd[1].limited_by, StartsWith("no layout divides model and batch; nearest: --batch "));
  const auto fp8 = predict_scaling(problem_of("gpt2-124m", "a100-80:1", 1024),
                                   {.num_devices = 8, .global_batch = 64, .precisions = {Precision::fp8}}, {8}, false);
  EXPECT_EQ(fp8[0].limited_by, "a100-80 does not support fp8");
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
    EXPECT_THAT(error.report().got, HasSubstr("4 nodes of 2; network_link.bandwidth is missing"));
  }
}

// The answer of a curve is about where its goal holds; without one, or where it holds nowhere, about the largest point.
TEST(Scaling, the_answer_is_about_one_point) {
  const auto point = [](int devices, double step_seconds) {
    ScalePoint made;
    made.num_devices = devices;
    if (step_seconds > 0)
      made.price.emplace().step_seconds = step_seconds;
    return made;
  };
  const std::vector<ScalePoint> points{point(32, 1), point(8, 4), point(16, 2), point(64, 0)};
  EXPECT_EQ(point_of_answer(points, {}).num_devices, 32) << "64 have no layout";
  EXPECT_EQ(point_of_answer(points, {.most_step_seconds = 2.5, .least_tokens_per_second = {}}).num_devices, 16);
  EXPECT_EQ(point_of_answer(points, {.most_step_seconds = 0.5, .least_tokens_per_second = {}}).num_devices, 32);
  EXPECT_EQ(point_of_answer({point(8, 0), point(16, 0)}, {}).num_devices, 16);
}

}  // namespace
