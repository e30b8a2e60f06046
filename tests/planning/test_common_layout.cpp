// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planning/common_layout.hpp"
#include "planning/layout_limits.hpp"
#include "planning/memo.hpp"
#include "planning/plan_text.hpp"
#include "planning/run_cost.hpp"
#include "planning/time_text.hpp"
#include "planning/why_slower.hpp"
#include "tests/planning/problems.hpp"

using namespace espalier;
using espalier::test::problem_of;
using testing::HasSubstr;

namespace {

// A machine that is named twice has a best layout, and that loses nothing.
TEST(CommonLayout, one_machine_twice_loses_nothing) {
  struct Case {
    const char* model;
    const char* cluster;
    Precision precision;
  };
  for (const auto& [model, cluster, precision] : {Case{"gpt-145b", "a100-80:16", Precision::bf16},
                                                  {"gpt3-175b", "h100:8", Precision::bf16},
                                                  {"gpt-30b", "v100:16", Precision::fp16}}) {
    const PlanProblem problem = problem_of(model, cluster);
    LayoutSpace space{.num_devices = problem.cluster.num_devices(), .global_batch = 256};
    space.precisions = {precision};
    space.tries_orders = true;
    const CommonLayout common = search_common_layout({problem, problem}, space);
    ASSERT_TRUE(common.layout) << model;
    EXPECT_LE(common.loss(0), equal_share) << model;
    EXPECT_EQ(common.loss(0), common.loss(1)) << model;
    EXPECT_EQ(common.prices[0].step_seconds, price_layout(problem, *common.layout).step_seconds);
  }
}

// Nodes of 2 devices have tensor degrees up to 4, nodes of 8 up to 16: what suits both is asked of all.
TEST(CommonLayout, the_order_of_the_machines_does_not_matter) {
  const PlanProblem small_nodes = problem_of("gpt-22b", "h100:16x2");
  const PlanProblem large_nodes = problem_of("gpt-22b", "a100-80:4");
  for (const Index batch : {16, 128}) {
    const LayoutSpace space{.num_devices = 32, .global_batch = batch};
    const CommonLayout one = search_common_layout({small_nodes, large_nodes}, space);
    const CommonLayout other = search_common_layout({large_nodes, small_nodes}, space);
    ASSERT_TRUE(one.layout && other.layout);
    EXPECT_EQ(one.layout->text(), other.layout->text());
    EXPECT_EQ(one.loss(0), other.loss(1));
    // No layout of either space is better: neither one that a machine likes best, nor one between.
    const double worst = std::max(one.loss(0), one.loss(1));
    for (const PlanProblem* const machine : {&small_nodes, &large_nodes})
      for (const LayoutPrice& each : search_layouts(*machine, space).ranking) {
        double loss = 0;
        for (const auto& [problem, best] : {std::pair(&small_nodes, &one.bests[0]), {&large_nodes, &one.bests[1]}}) {
          const LayoutPrice price = price_layout(*problem, each.layout);
          loss =
              std::max(loss, why_too_large(*problem, price).empty() ? price.step_seconds / best->step_seconds - 1 : 1);
        }
        EXPECT_GE(loss, worst - equal_share) << each.layout.text();
      }
  }
}

TEST(CommonLayout, it_loses_little_on_each_machine) {
  std::vector<PlanProblem> problems{problem_of("gpt-22b", "a100-80:4"), problem_of("gpt-22b", "h100:4")};
  const CommonLayout common = search_common_layout(problems, {.num_devices = 32, .global_batch = 128});
  ASSERT_TRUE(common.layout);
  for (std::size_t i = 0; i < problems.size(); ++i) {
    EXPECT_EQ(why_too_large(problems[i], common.prices[i]), "");
    EXPECT_GE(common.loss(i), 0);
    EXPECT_LT(common.loss(i), 0.2);
  }
  const std::string text =
      common_layout_text(problems, common, {.most_step_seconds = 3, .least_tokens_per_second = {}});
  for (const char* const part :
       {"best for all: ", "slower", "9 of 10 cases", "GiB", "goal on a100-80: a step of at most 3 s: missed by",
        "goal on h100: a step of at most 3 s: met"})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST(CommonLayout, its_memo_says_what_each_machine_loses) {
  const std::vector<PlanProblem> problems{problem_of("gpt-22b", "a100-80:4"), problem_of("gpt-22b", "h100:4")};
  const LayoutSpace space{.num_devices = 32, .global_batch = 128};
  const CommonLayout common = search_common_layout(problems, space);
  ASSERT_TRUE(common.layout);
  const std::string memo =
      common_memo(problems, space, common, {.most_step_seconds = 3, .least_tokens_per_second = {}});
  for (const char* const part :
       {"# How to train gpt-22b on 32 devices of each of a100-80, h100",
        "On a100-80: The best layout for this machine alone is ", "On h100: The best layout for this machine alone is ",
        "**Goal on a100-80.** A step of at most 3 s: missed by", "**Goal on h100.** A step of at most 3 s: met with",
        "## How it fits in memory", "# On a100-80\n", "# On h100\n", "## Question", "## Answer", "## What limits it",
        "## How sure we are", "## What could be changed"})
    EXPECT_THAT(memo, HasSubstr(part));
  EXPECT_THAT(memo, HasSubstr(fmt::format(" | {} | {} s |\n", time_text(common.prices[1].step_seconds),
                                          interval_text(common.prices[1].step_interval))));
}

// A change is made on all machines: what has no room on one of them is not the first thing to try on another.
TEST(CommonLayout, its_memo_proposes_what_all_machines_can) {
  const std::vector<PlanProblem> problems{problem_of("gpt3-6.7b", "a100-80:4"), problem_of("gpt3-6.7b", "v100:4")};
  LayoutSpace space{.num_devices = 32, .global_batch = 256};
  space.precisions = {Precision::fp16};
  const CommonLayout common = search_common_layout(problems, space);
  ASSERT_TRUE(common.layout);
  const std::string memo = common_memo(problems, space, common, {});
  const std::string on_a100 =
      memo.substr(memo.find("# On a100-80\n"), memo.find("# On v100\n") - memo.find("# On a100-80\n"));
  EXPECT_THAT(on_a100, HasSubstr("on v100: does not fit"));
}

// 32 A100 or 16 H100: each with its own best layout, cost and all, in one table.
TEST(CommonLayout, unlike_clusters_stand_side_by_side) {
  std::vector<PlanProblem> problems{problem_of("gpt-22b", "a100-80:4"), problem_of("gpt-22b", "h100:2")};
  for (PlanProblem& problem : problems) {
    problem.num_tokens = 100'000'000'000;
    problem.cluster.price_per_device_hour = problem.cluster.name == "h100" ? 4 : 2;
    problem.cluster.currency = "EUR";
  }
  LayoutSpace space{.num_devices = 32, .global_batch = 128};
  const CommonLayout common = compare_machines(problems, space, true);
  EXPECT_FALSE(common.layout);
  ASSERT_TRUE(common.has(0) && common.has(1));
  EXPECT_EQ(common.bests[0].layout.num_devices(), 32);
  EXPECT_EQ(common.bests[1].layout.num_devices(), 16);
  const double faster = common.bests[0].step_seconds / common.bests[1].step_seconds;
  const double dearer = 4.0 * 16 / common.bests[1].tokens_per_second / (2.0 * 32 / common.bests[0].tokens_per_second);
  const bool h100_first = faster > 1;
  const std::string text = common_layout_text(problems, common);
  const std::string memo = common_memo(problems, space, common);
  for (const std::string& shown : {text, memo}) {
    EXPECT_THAT(shown, HasSubstr(fmt::format("trains {:.2f} times as many tokens per second as {}",
                                             h100_first ? faster : 1 / faster,
                                             h100_first ? "a100-80 (32 devices)" : "h100 (16 devices)")));
    const double ratio = h100_first ? dearer : 1 / dearer;
    const LayoutPrice& fast = common.bests[h100_first ? 1 : 0];
    const LayoutPrice& slow = common.bests[h100_first ? 0 : 1];
    const auto with = [&](double fast_seconds, double slow_seconds) {
      return ratio * (fast_seconds / fast.step_seconds) / (slow_seconds / slow.step_seconds);
    };
    const double least = with(fast.step_interval.low, slow.step_interval.high);
    const double most = with(fast.step_interval.high, slow.step_interval.low);
    EXPECT_THAT(shown,
                HasSubstr(fmt::format("costs {:.2f} times as much as {} ({:.2f} to {:.2f} within both ranges)", ratio,
                                      h100_first ? "a100-80 (32 devices)" : "h100 (16 devices)", least, most)));
    EXPECT_EQ(shown.find("either of the two may be cheaper") != shown.npos, least < 1 && most > 1);
  }
  EXPECT_THAT(text, HasSubstr(" EUR ("));
  EXPECT_THAT(memo, HasSubstr(" EUR | "));
}

// One that has no layout does not hide the other.
TEST(CommonLayout, one_without_a_layout_says_why) {
  const std::vector<PlanProblem> problems{problem_of("gpt-22b", "v100:1x2"), problem_of("gpt-22b", "h100:2")};
  LayoutSpace space{.num_devices = 2, .global_batch = 128};
  space.precisions = {Precision::fp16};
  const CommonLayout common = compare_machines(problems, space, true);
  EXPECT_FALSE(common.has(0));
  EXPECT_TRUE(common.has(1));
  EXPECT_THAT(common_layout_text(problems, common), HasSubstr("no layout fits: "));
  EXPECT_THAT(common_memo(problems, space, common), HasSubstr("no layout fits: "));
  // Where none has one, the memo still has the part by which `plan` knows its own memos.
  const std::vector<PlanProblem> too_small{problems[0], problems[0]};
  const CommonLayout none = compare_machines(too_small, space, true);
  EXPECT_FALSE(none.has(0) || none.has(1));
  EXPECT_THAT(common_memo(too_small, space, none), HasSubstr("## How it fits in memory"));
}

}  // namespace
