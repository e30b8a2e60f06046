// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "core/error.hpp"
#include "planning/goal.hpp"
#include "planning/interval.hpp"
#include "planning/layout_limits.hpp"
#include "planning/no_layout.hpp"
#include "planning/plan_text.hpp"
#include "planning/runnable.hpp"
#include "planning/search.hpp"
#include "tests/planning/problems.hpp"

using namespace espalier;
using espalier::test::layout_of;
using espalier::test::problem_of;
using testing::HasSubstr;
using testing::Not;

namespace {

// Of this process: what else the machine does is not counted.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

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
  for (const Layout& layout : enumerate_layouts(problem, space)) {
    if (!why_impossible(problem, layout).empty())
      continue;
    const LayoutPrice price = price_layout(problem, layout);
    if (why_too_large(problem, price).empty())
      best = std::min(best, price.step_seconds);
  }
  EXPECT_NEAR(result.ranking.front().step_seconds / best, 1, 0.005);
}

/// Expects that no choice of `fixed` gives a faster step than the best of `space`, where they are free.
void expect_free_is_fastest(const PlanProblem& problem, LayoutSpace space, const std::vector<const char*>& fixed) {
  space.only_runnable = true;
  const LayoutPrice free = search_layouts(problem, space).ranking.front();
  for (const char* const choice : fixed) {
    LayoutSpace narrow = space;
    fix_choices(narrow, choice);
    EXPECT_LE(free.step_seconds, search_layouts(problem, narrow).ranking.front().step_seconds * 1.0002)
        << problem.model_name << ", " << choice << ": " << free.layout.text();
  }
}

// Where messages between stages are long the closed form misses them by far, and chunks need not divide the layers.
TEST(Search, a_choice_that_is_fixed_is_never_faster_than_one_left_free) {
  PlanProblem slow_network = problem_of("gpt2-1558m", "a100-40:4", 1024);
  slow_network.cluster.network.bandwidth = slow_network.cluster.network.alone = 2e9;
  expect_free_is_fastest(slow_network, {.num_devices = 32, .global_batch = 64, .data = 16, .pipeline = 2},
                         {"micro_batch=1", "micro_batch=2"});
  expect_free_is_fastest(problem_of("gpt3-6.7b", "b200:32", 2048), {.num_devices = 256, .global_batch = 64},
                         {"micro_batch=1", "pipeline=4"});
  expect_free_is_fastest(problem_of("gpt-76b", "h100:64", 2048), {.num_devices = 512, .global_batch = 512},
                         {"virtual_stages=8"});
  expect_free_is_fastest(problem_of("gpt-76b", "mi250x:16", 2048), {.num_devices = 128, .global_batch = 1000},
                         {"sequence_parallel=0"});
}

TEST(Search, what_is_fixed_holds_or_is_refused) {
  LayoutSpace space{.num_devices = 8, .global_batch = 64, .sequence_parallel = true};
  for (const LayoutPrice& price : search_layouts(problem_of("gpt2-1558m", "h100", 1024), space).ranking)
    EXPECT_TRUE(price.layout.sequence_parallel) << price.layout.text();
  for (const char* const text :
       {"sequence_parallel=1,tensor=1", "schedule=interleaved,pipeline=1", "schedule=1f1b,virtual_stages=4"}) {
    LayoutSpace fixed = space;
    EXPECT_THROW(fix_choices(fixed, text), Error) << text;
  }
}

TEST(Search, a_trillion_parameters_on_16384_devices_take_seconds) {
  const PlanProblem problem = problem_of("gpt-1t", "a100-80:2048");
  const double start = cpu_seconds();
  const SearchResult result = search_layouts(problem, {.num_devices = 16384, .global_batch = 4096});
  EXPECT_LT(cpu_seconds() - start, 10);
  ASSERT_FALSE(result.ranking.empty());
  EXPECT_GT(result.num_considered, 1000u);
  EXPECT_LE(result.ranking.front().layout.tensor, 16);
}

// Pipelines of up to 512 stages with chunks.
TEST(Search, a_very_deep_model_takes_seconds) {
  PlanProblem problem = problem_of("gpt-1t", "a100-80:2048");
  problem.model.num_layers = 1024;
  const double start = cpu_seconds();
  const SearchResult result = search_layouts(problem, {.num_devices = 16384, .global_batch = 4096});
  EXPECT_LT(cpu_seconds() - start, 20);
  EXPECT_FALSE(result.ranking.empty());
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

// Goals that nothing reaches: the error says which is the nearest that can be.
TEST(Search, unreachable_goals_name_the_nearest) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  const SearchResult result = search_layouts(problem, {.num_devices = 32, .global_batch = 128});
  const LayoutPrice& best = result.ranking.front();
  EXPECT_NO_THROW(require_goal(best, {}));
  EXPECT_NO_THROW(require_goal(best, {.most_step_seconds = best.step_seconds, .least_tokens_per_second = {}}));
  try {
    require_goal(best, {.most_step_seconds = 0.001, .least_tokens_per_second = {}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.report().wanted, HasSubstr(best.layout.text()));
  }
  EXPECT_THROW(require_goal(best, {.most_step_seconds = {}, .least_tokens_per_second = 1e15}), Error);
  const std::vector<GoalResult> results = goal_results(
      best, {.most_step_seconds = 2 * best.step_seconds, .least_tokens_per_second = 2 * best.tokens_per_second});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_NEAR(results[0].margin, 0.5, 1e-12);
  EXPECT_NEAR(results[1].margin, -0.5, 1e-12);
}

ErrorReport report_of(const PlanProblem& problem, const LayoutSpace& space) {
  const SearchResult result = search_layouts(problem, space);
  EXPECT_TRUE(result.ranking.empty());
  return no_layout_report(problem, space, result);
}

// Where some layout divides, memory is what is wrong.
TEST(Search, nothing_that_fits_says_what_is_needed) {
  const LayoutSpace space{.num_devices = 8, .global_batch = 8};
  const ErrorReport report = report_of(problem_of("gpt-200b", "a100-80:1"), space);
  EXPECT_THAT(report.got, HasSubstr("the smallest of"));
  EXPECT_EQ(report.wanted, "at most 74.00 GiB free (of 80.00 GiB, 6.00 GiB reserved)");
  const std::size_t devices = report.todo.find(" devices (a layout fits there)");
  ASSERT_NE(devices, std::string::npos) << report.todo;
  const int more = std::stoi(report.todo.substr(4, devices));
  const PlanProblem larger = problem_of("gpt-200b", fmt::format("a100-80:{}", more / 8).c_str());
  EXPECT_FALSE(search_layouts(larger, {.num_devices = more, .global_batch = 8}).ranking.empty()) << more;
}

// The first answer is one that `train` runs. What is not built yet is told with its gain, where it has one.
TEST(Search, recommends_what_train_runs) {
  const PlanProblem problem = problem_of("gpt2-1558m", "h100", 1024);
  LayoutSpace space{.num_devices = 8, .global_batch = 64};
  const SearchResult result = recommend_layouts(problem, space);
  EXPECT_TRUE(space.only_runnable);
  for (const LayoutPrice& price : result.ranking)
    EXPECT_EQ(why_not_runnable(problem, price.layout), "") << price.layout.text();
  LayoutSpace open{.num_devices = 8, .global_batch = 64};
  const LayoutPrice fastest = search_layouts(problem, open).ranking.front();
  double own = result.ranking.front().step_seconds;
  for (const LayoutPrice& price : result.ranking)
    own = std::min(own, price.step_seconds);
  if (fastest.step_seconds * 1.005 < own) {
    ASSERT_TRUE(result.not_built.has_value());
    EXPECT_NE(why_not_runnable(problem, result.not_built->layout), "");
    EXPECT_THAT(not_built_text(result), HasSubstr("% faster; train"));
  } else {
    EXPECT_EQ(not_built_text(result), "");
  }
}

// Of layouts whose difference the prediction's error hides, the one with fewest stages and tensor ranks is the answer.
TEST(Search, recommends_the_simplest_of_those_that_it_cannot_tell_apart) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  LayoutSpace space{.num_devices = 32, .global_batch = 128};
  const SearchResult result = recommend_layouts(problem, space);
  ASSERT_FALSE(result.ranking.empty());
  const LayoutPrice& answer = result.ranking.front();
  double fastest = answer.step_seconds;
  for (const LayoutPrice& price : result.ranking)
    fastest = std::min(fastest, price.step_seconds);
  std::size_t alike = 0;
  for (const LayoutPrice& price : result.ranking)
    if (price.step_seconds < fastest * (1 + step_resolution(problem.cluster))) {
      ++alike;
      EXPECT_LE(std::pair(answer.layout.pipeline, answer.layout.tensor),
                std::pair(price.layout.pipeline, price.layout.tensor))
          << price.layout.text();
    }
  EXPECT_EQ(result.num_alike, alike);
  ASSERT_GT(alike, 1u) << "choose a problem that has several";
  EXPECT_THAT(alike_text(problem, result), HasSubstr(fmt::format("{} layouts differ by less than 5 %", alike)));
  EXPECT_LT(answer.step_seconds, fastest * (1 + step_resolution(problem.cluster)));
  for (std::size_t i = 2; i < result.ranking.size(); ++i)
    EXPECT_GE(result.ranking[i].step_seconds, result.ranking[i - 1].step_seconds * 0.999)
        << "the others, fastest first";
  for (const Rejection& rejection : result.rejections)
    EXPECT_EQ(rejection.verdict == Verdict::alike, rejection.reason.starts_with("faster by")) << rejection.reason;
}

// The simplest layout may be slower than what was asked for: then one that is fast enough is the answer.
TEST(Search, answers_with_a_layout_that_is_as_fast_as_wanted) {
  PlanProblem problem = problem_of("llama3-8b", "h100:4");
  problem.sequence_length = 8192;
  LayoutSpace space{.num_devices = 32, .global_batch = 512};
  const SearchResult free = recommend_layouts(problem, space);
  const auto seconds = [](const SearchResult& result) { return result.ranking.front().step_seconds; };
  double fastest = seconds(free);
  for (const LayoutPrice& price : free.ranking)
    fastest = std::min(fastest, price.step_seconds);
  ASSERT_LT(fastest, seconds(free)) << "choose a problem whose answer is not the fastest";
  for (const double wanted : {seconds(free), 0.5 * (fastest + seconds(free)), fastest}) {
    space.most_step_seconds = wanted;
    EXPECT_LE(seconds(recommend_layouts(problem, space)), wanted);
  }
  space.most_step_seconds = 0.5 * fastest;
  EXPECT_EQ(seconds(recommend_layouts(problem, space)), fastest) << "none is: the fastest";
}

// Within the mesh of the answer a lower ZeRO stage that costs less than the error is simpler, too.
TEST(Search, recommends_the_lowest_zero_stage_of_those_that_it_cannot_tell_apart) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  for (const char* const fixed : {"tensor=8,pipeline=1", "tensor=4,pipeline=1"}) {
    LayoutSpace space{.num_devices = 32, .global_batch = 128};
    fix_choices(space, fixed);
    const LayoutPrice fastest = search_layouts(problem, space, 1).ranking.front();
    const SearchResult result = search_layouts(problem, space, 16, Prefer::simplest);
    const LayoutPrice& answer = result.ranking.front();
    EXPECT_LT(answer.step_seconds, fastest.step_seconds * (1 + step_resolution(problem.cluster)));
    for (int stage = 0; stage < answer.layout.zero_stage; ++stage) {
      space.zero_stage = stage;
      const SearchResult lower = search_layouts(problem, space, 1);
      EXPECT_TRUE(lower.ranking.empty() ||
                  lower.ranking.front().step_seconds >= fastest.step_seconds * (1 + step_resolution(problem.cluster)))
          << fixed << ": " << answer.layout.text();
    }
    if (answer.layout.zero_stage < fastest.layout.zero_stage) {
      EXPECT_EQ(result.ranking[1].layout.text(), fastest.layout.text());
      EXPECT_THAT(result.rejections.front().reason, HasSubstr("a higher ZeRO stage"));
    }
  }
}

// A measured machine has its own error.
TEST(Search, a_calibrated_machine_tells_more_apart) {
  PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  problem.cluster.device.error_share = 0.001;
  EXPECT_EQ(step_resolution(problem.cluster), 0.001);
  const LayoutPrice price = search_layouts(problem, {.num_devices = 32, .global_batch = 128}, 1).ranking.front();
  EXPECT_DOUBLE_EQ(price.step_interval.low, price.step_seconds * 0.999);
  EXPECT_DOUBLE_EQ(price.step_interval.high, price.step_seconds * 1.001);
}

// A model of which nothing that is built fits, and choices that only something unbuilt has.
TEST(Search, estimates_where_nothing_that_train_runs_is_left) {
  const PlanProblem problem = problem_of("gpt2-1558m", "h100", 1024);
  LayoutSpace fixed{.num_devices = 8, .global_batch = 64};
  fix_choices(fixed, "schedule=zero_bubble_v,pipeline=2");
  const SearchResult result = recommend_layouts(problem, fixed);
  EXPECT_FALSE(fixed.only_runnable);
  ASSERT_FALSE(result.ranking.empty());
  EXPECT_EQ(result.ranking.front().layout.schedule, ScheduleKind::zero_bubble_v);
  EXPECT_FALSE(result.not_built.has_value());
}

// What `train` lacks of a model says nothing about layouts.
TEST(Search, recommends_layouts_of_models_that_are_not_built) {
  const PlanProblem problem = problem_of("llama3-8b", "h100", 8192);
  LayoutSpace space{.num_devices = 8, .global_batch = 64};
  const SearchResult result = recommend_layouts(problem, space);
  EXPECT_TRUE(space.only_runnable);
  ASSERT_FALSE(result.ranking.empty());
  EXPECT_EQ(why_not_runnable(result.ranking.front().layout), "");
}

// A precision that the device lacks: those that it has, not other devices or batches.
TEST(Search, a_precision_that_lacks_names_those_that_are_there) {
  LayoutSpace space{.num_devices = 8, .global_batch = 64};
  space.precisions = {Precision::fp8};
  const ErrorReport report = report_of(problem_of("gpt2-124m", "a100-80", 1024), space);
  EXPECT_EQ(report.got, "a100-80 does not support fp8");
  EXPECT_EQ(report.wanted, "a precision that it supports: fp32, tf32, fp16, bf16");
  EXPECT_EQ(report.todo, "use --precision bf16, or --fix precision=bf16 if --fix chose it");
}

// Where none divides, the sizes next to those asked for with which one does, and whether that one would fit.
TEST(Search, nothing_that_divides_names_the_nearest_sizes) {
  const PlanProblem small = problem_of("gpt2-124m", "a100-80:8", 1024);
  const auto wanted = [](const PlanProblem& problem, const LayoutSpace& space) {
    return report_of(problem, space).todo;
  };
  const std::string batch = wanted(small, {.num_devices = 64, .global_batch = 7});
  EXPECT_THAT(batch, HasSubstr("--batch 6 or 8;"));
  PlanProblem odd = small;
  odd.cluster = with_devices(small.cluster, 13);
  const std::string devices = wanted(odd, {.num_devices = 13, .global_batch = 64});
  EXPECT_THAT(devices, HasSubstr("--devices 12 or 14"));
  EXPECT_THAT(devices, HasSubstr("--batch 52 or 65"));
  EXPECT_THAT(devices, HasSubstr("a model with num_layers = 13"));
  LayoutSpace fixed{.num_devices = 8, .global_batch = 64};
  fixed.tensor = 5;
  const std::string tensor = wanted(problem_of("gpt2-124m", "a100-80", 1024), fixed);
  EXPECT_THAT(tensor, HasSubstr("--fix tensor=4"));
  EXPECT_THAT(tensor, Not(HasSubstr("does not fit")));
  // A size that divides and does not fit is not offered as if it did.
  LayoutSpace large{.num_devices = 8, .global_batch = 7};
  large.data = 8;
  const std::string unfit = wanted(problem_of("gpt-200b", "a100-80"), large);
  EXPECT_THAT(unfit, HasSubstr("--batch 8 (does not fit: "));
}

// A batch that does not divide does not hide that no batch would help.
TEST(Search, a_batch_that_does_not_divide_hides_no_memory) {
  const std::string large = impossible_text(problem_of("gpt-200b", "a100-40:64"), layout_of("data=512", 1000));
  EXPECT_THAT(large, HasSubstr("(nearest: 512 or 1024); with a batch that divides it does not fit: stage 0 needs 3."));
  EXPECT_EQ(impossible_text(problem_of("gpt2-124m", "a100-80", 1024), layout_of("data=8", 12)),
            "global_batch_size 12 is not divisible by micro_batch_size 1 x data 8 (nearest: 8 or 16)");
}

// Two columns, and the difference between them is said.
TEST(Search, bubble_and_idle_time_are_told_apart) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  const LayoutPrice price = price_layout(problem, layout_of("data=8,pipeline=4,zero=1", 512));
  const double bubble = price[Phase::bubble] / price.step_seconds;
  EXPECT_GT(price.idle_share, bubble);  // the last stage has the head, for which the others wait
  const std::string text = ranking_text(problem, {price}, 1);
  EXPECT_THAT(text, HasSubstr(fmt::format(" {:.1f} %   {:>4.1f} % ", 100 * bubble, 100 * price.idle_share)));
  EXPECT_THAT(text, HasSubstr("bubble: share of the step that the busiest stage waits"));
  const std::string alone = ranking_text(problem, {price_layout(problem, layout_of("data=32,zero=3", 512))}, 1);
  EXPECT_THAT(alone, Not(HasSubstr("bubble: ")));
}

}  // namespace
