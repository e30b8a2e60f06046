// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/scalars.hpp"
#include "planning/joint_job.hpp"
#include "planning/layout_limits.hpp"
#include "tests/planning/problems.hpp"

using namespace espalier;
using espalier::test::problem_of;
using testing::HasSubstr;

namespace {

constexpr ClusterLink fast{.bandwidth = 1e15, .latency = 1e-9};

LayoutSpace batch_of(Index sequences) { return {.global_batch = sequences}; }

// Two halves of one machine, joined by a link that costs nothing, are that machine.
TEST(JointJob, of_two_halves_is_the_whole) {
  const std::vector<PlanProblem> halves(2, problem_of("gpt-22b", "a100-80:2"));
  const JointSearch search = search_joint_job(halves, batch_of(64), fast);
  ASSERT_TRUE(search.job) << search.why_none;
  const PlanProblem whole = problem_of("gpt-22b", "a100-80:4");
  const LayoutPrice price = price_layout(whole, search.job->layout);
  EXPECT_NEAR(search.job->step_seconds, price.step_seconds, 0.03 * price.step_seconds);
  EXPECT_EQ(std::max(search.job->memory_bytes[0], search.job->memory_bytes[1]), price.memory_bytes);
}

TEST(JointJob, layers_follow_the_speed_of_their_devices) {
  const std::vector<PlanProblem> problems{problem_of("gpt-22b", "a100-80:2"), problem_of("gpt-22b", "h100:2")};
  const JointSearch search = search_joint_job(problems, batch_of(256), fast);
  ASSERT_TRUE(search.job) << search.why_none;
  const JointJob& job = *search.job;
  EXPECT_EQ(job.layers_on(0) + job.layers_on(1), problems[0].model.num_layers);
  EXPECT_GT(to_double(job.layers_on(1)), 1.5 * to_double(job.layers_on(0)));
  for (const std::size_t i : {0, 1})
    EXPECT_TRUE(fits_memory(problems[i], job.memory_bytes[i]));
  EXPECT_LT(job.step_interval.low, job.step_seconds);
  EXPECT_GT(job.step_interval.high, job.step_seconds);
}

// The link carries all activations of a step, each way.
TEST(JointJob, a_slow_link_bounds_the_step) {
  const std::vector<PlanProblem> problems{problem_of("gpt-22b", "a100-80:2"), problem_of("gpt-22b", "h100:2")};
  const ClusterLink slow{.bandwidth = 1e8, .latency = 1e-3};
  const JointSearch search = search_joint_job(problems, batch_of(256), slow);
  ASSERT_TRUE(search.job);
  const double bytes = 256.0 * 2048 * to_double(problems[0].model.hidden_size) * 2;
  EXPECT_GE(search.job->step_seconds, bytes / slow.bandwidth);
  EXPECT_GT(search.job->step_seconds, search_joint_job(problems, batch_of(256), fast).job->step_seconds);
}

// Devices of 13 GB and of 80 GB: the small ones get fewer layers than their speed would give them.
TEST(JointJob, small_memory_takes_fewer_layers) {
  std::vector<PlanProblem> problems{problem_of("gpt-22b", "h100:2"), problem_of("gpt-22b", "h100:2")};
  problems[1].cluster.device.memory_bytes /= 6;
  const JointSearch search = search_joint_job(problems, batch_of(256), fast);
  ASSERT_TRUE(search.job) << search.why_none;
  EXPECT_LT(search.job->layers_on(1), search.job->layers_on(0));
  EXPECT_TRUE(fits_memory(problems[1], search.job->memory_bytes[1]));
}

TEST(JointJob, days_and_cost_are_those_of_all_devices) {
  std::vector<PlanProblem> problems{problem_of("gpt-22b", "a100-80:2"), problem_of("gpt-22b", "h100:4")};
  const JointSearch search = search_joint_job(problems, batch_of(256), fast);
  ASSERT_TRUE(search.job) << search.why_none;
  EXPECT_FALSE(search.job->run_cost(problems));
  for (PlanProblem& problem : problems) {
    problem.num_tokens = 10 * 256 * 2048;
    problem.cluster.price_per_device_hour = problem.cluster.num_devices();  // 16 and 32
    problem.cluster.currency = "EUR";
  }
  const RunCost run = search.job->run_cost(problems).value();
  const double hours = 10 * search.job->step_seconds / 3600;
  EXPECT_NEAR(run.days.value, hours / 24, 1e-9);
  EXPECT_NEAR(run.device_hours.value, 48 * hours, 1e-9);
  EXPECT_NEAR(run.cost.value().value, (16 * 16 + 32 * 32) * hours, 1e-6);
  EXPECT_FALSE(run.energy);
  EXPECT_THAT(joint_job_text(problems, search, 0), HasSubstr("tokens are 10 steps: "));
  problems[1].cluster.currency = "USD";
  EXPECT_FALSE(search.job->run_cost(problems)->cost);
}

TEST(JointJob, a_fixed_schedule_it_does_not_know_is_named) {
  const std::vector<PlanProblem> problems(2, problem_of("gpt-22b", "a100-80:2"));
  LayoutSpace space = batch_of(64);
  space.schedule = ScheduleKind::zero_bubble;
  EXPECT_THAT(search_joint_job(problems, space, fast).why_none, HasSubstr("with the schedule 1f1b"));
}

TEST(JointJob, what_is_impossible_says_why) {
  // 8 and 9 devices have no common divisor but 1: 17 stages.
  const std::vector<PlanProblem> problems{problem_of("gpt2-124m", "a100-80:1x8"), problem_of("gpt2-124m", "h100:1x9")};
  const JointSearch search = search_joint_job(problems, batch_of(64), fast);
  EXPECT_FALSE(search.job);
  EXPECT_THAT(search.why_none, HasSubstr("pipeline 17 x virtual_stages 1 = 17 parts are more than num_layers 12"));
  EXPECT_THAT(joint_job_text(problems, search, 0), HasSubstr("no job across both clusters was found: "));
}

}  // namespace
