// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planning/run_cost.hpp"
#include "tests/planning/problems.hpp"

using namespace espalier;
using espalier::test::layout_of;
using espalier::test::problem_of;
using testing::HasSubstr;
using testing::Not;

namespace {

PlanProblem priced_problem() {
  PlanProblem problem = problem_of("gpt3-6.7b", "a100-80:2");
  problem.num_tokens = 300'000'000'000;
  problem.cluster.price_per_device_hour = 2.5;
  problem.cluster.currency = "EUR";
  problem.cluster.device_watts = 700;
  return problem;
}

// From tokens to money by hand: 256 sequences of 2048 tokens a step on 16 devices.
TEST(RunCost, follows_from_the_step) {
  const PlanProblem problem = priced_problem();
  const LayoutPrice price = price_layout(problem, layout_of("data=16,zero=1,recompute=selective", 256));
  const RunCost run = run_cost(problem, price);
  EXPECT_EQ(run.steps, 572205);  // 300e9 / 524288 = 572204.6
  const double hours = 572205 * price.step_seconds / 3600;
  EXPECT_NEAR(run.days.value, hours / 24, 1e-9 * hours);
  EXPECT_NEAR(run.device_hours.value, 16 * hours, 1e-9 * hours);
  ASSERT_TRUE(run.cost && run.energy);
  EXPECT_NEAR(run.cost->value, 16 * hours * 2.5, 1e-6 * hours);
  EXPECT_NEAR(run.energy->value, 16 * hours * 0.7, 1e-6 * hours);
  const double low = price.step_interval.low / price.step_seconds;
  const double high = price.step_interval.high / price.step_seconds;
  EXPECT_LT(low, 1);
  EXPECT_GT(high, 1);
  for (const Predicted& each : {run.days, run.device_hours, *run.cost, *run.energy}) {
    EXPECT_NEAR(each.interval.low, low * each.value, 1e-9 * each.value);
    EXPECT_NEAR(each.interval.high, high * each.value, 1e-9 * each.value);
  }
}

TEST(RunCost, tells_only_what_the_cluster_states) {
  PlanProblem problem = priced_problem();
  const LayoutPrice price = price_layout(problem, layout_of("data=16,zero=1,recompute=selective", 256));
  EXPECT_THAT(run_cost_text(problem, price), HasSubstr("300B tokens are 572205 steps: "));
  EXPECT_THAT(run_cost_text(problem, price), HasSubstr(" EUR ("));
  EXPECT_THAT(run_cost_text(problem, price), HasSubstr(" kWh ("));
  problem.cluster.price_per_device_hour = problem.cluster.device_watts = 0;
  EXPECT_FALSE(run_cost(problem, price).cost || run_cost(problem, price).energy);
  EXPECT_THAT(run_cost_text(problem, price), Not(HasSubstr("EUR")));
  EXPECT_THAT(run_cost_text(problem, price), Not(HasSubstr("kWh")));
}

TEST(RunCost, numbers_have_three_digits) {
  EXPECT_EQ(rounded_text(0.4634), "0.463");
  EXPECT_EQ(rounded_text(12.34), "12.3");
  EXPECT_EQ(rounded_text(999.4), "999");
  EXPECT_EQ(rounded_text(999.6), "1,000");
  EXPECT_EQ(rounded_text(1234), "1,230");
  EXPECT_EQ(rounded_text(302400), "302,000");
  EXPECT_EQ(rounded_text(12345678), "12,300,000");
  EXPECT_EQ(tokens_text(300'000'000'000), "300B");
  EXPECT_EQ(tokens_text(15'000'000'000'000), "15T");
}

}  // namespace
