// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planning/collective_time.hpp"
#include "planning/search.hpp"
#include "planning/time_text.hpp"
#include "planning/why_slower.hpp"
#include "tests/planning/problems.hpp"

using namespace espalier;
using espalier::test::layout_of;
using espalier::test::problem_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace {

// Of the two layouts, not of the phase alone: products of the same size are not called smaller.
TEST(WhySlower, causes_are_told_from_both_layouts) {
  const auto reason = [](const PlanProblem& problem, const std::string& slow, const std::string& best) {
    return why_slower(problem, price_layout(problem, layout_of(slow.c_str(), 64)),
                      price_layout(problem, layout_of(best.c_str(), 64)));
  };
  const PlanProblem nodes = problem_of("gpt2-124m", "cpu:8", 1024);
  const std::string best = "data=8,precision=fp32,micro_batch=8";
  const std::string small = reason(nodes, "data=8,precision=fp32,micro_batch=1", best);
  EXPECT_THAT(small, HasSubstr("smaller matmuls (micro-batch 1 instead of 8)"));
  EXPECT_THAT(reason(nodes, best, best), StartsWith("as fast ("));
  const PlanProblem large = problem_of("gpt-200b", "a100-40:64");
  const std::string deep = reason(large, "tensor=4,pipeline=64,schedule=zero_bubble", "tensor=4,pipeline=16");
  EXPECT_THAT(deep, Not(HasSubstr("smaller matmuls")));
}

TEST(WhySlower, norms_of_all_rows_are_a_cause) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  const LayoutPrice best = price_layout(problem, layout_of("tensor=8,data=4,sequence_parallel=1", 128));
  LayoutPrice slower = price_layout(problem, layout_of("tensor=8,data=4", 128));
  const double more = 0.01 * slower.step_seconds;  // so that no other phase is longer by more
  for (std::size_t i = 0; i < num_phases; ++i)
    slower.seconds.seconds[i] = std::min(slower.seconds.seconds[i], best.seconds.seconds[i]);
  slower[Phase::backward] = best[Phase::backward] + more;
  slower.step_seconds = best.step_seconds + more;
  const std::string reason = why_slower(problem, slower, best);
  EXPECT_THAT(reason, HasSubstr("more in backward, because each tensor rank computes norms and residuals of all rows"));
}

// What holds for both layouts is not why one of them is slower.
TEST(WhySlower, a_cause_holds_for_one_of_two) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  std::vector<LayoutPrice> prices;
  for (const char* const text :
       {"tensor=8,data=4", "tensor=8,data=4,micro_batch=4", "tensor=8,data=4,recompute=full",
        "tensor=8,data=4,recompute=full,micro_batch=4", "tensor=16,data=2", "tensor=16,data=2,micro_batch=4",
        "tensor=8,pipeline=4", "tensor=8,pipeline=4,micro_batch=4", "tensor=8,pipeline=4,virtual_stages=4",
        "tensor=4,pipeline=8,schedule=zero_bubble", "tensor=2,context=2,data=8", "tensor=2,context=4,data=4",
        "data=32,zero=3", "data=32,zero=3,micro_batch=4", "data=32,zero=2", "data=32", "data=8,pipeline=4",
        "data=8,pipeline=4,order=pipeline_first"})
    prices.push_back(price_layout(problem, layout_of(text, 128)));
  const auto nodes = [&](const AxisPlacement& axis) { return axis.size > 1 && crosses_nodes(problem.cluster, axis); };
  int told = 0;
  for (const LayoutPrice& slow : prices)
    for (const LayoutPrice& fast : prices) {
      if (fast.step_seconds >= slow.step_seconds)
        continue;
      const Layout& a = slow.layout;
      const Layout& b = fast.layout;
      const std::string reason = why_slower(problem, slow, fast);
      SCOPED_TRACE(a.text() + " against " + b.text() + ": " + reason);
      const auto says = [&](const char* text) { return reason.find(text) != std::string::npos; };
      told += says(", because ") ? 1 : 0;
      EXPECT_TRUE(!says("tensor ranks are on several nodes") || !nodes(tensor_axis(b)));
      EXPECT_TRUE(!says("tensor ranks exchange") || a.tensor > b.tensor);
      EXPECT_TRUE(!says("context ranks exchange") || a.context > b.context);
      EXPECT_TRUE(!says("recompute ") || a.recompute > b.recompute || says(" in recompute"));
      EXPECT_TRUE(!says("repeats") || a.recompute > b.recompute);
      EXPECT_TRUE(!says("stages share") ||
                  (a.pipeline - 1) * b.num_microbatches() > (b.pipeline - 1) * a.num_microbatches());
      EXPECT_TRUE(!says("summed over") || a.data * a.context > b.data * b.context);
      EXPECT_TRUE(!says("as many weights") || a.tensor * a.pipeline < b.tensor * b.pipeline);
      EXPECT_TRUE(!says("replicas are on several nodes") || !nodes(data_axis(b)));
      EXPECT_TRUE(!says("are gathered") || b.zero_stage < 3 || a.num_microbatches() > b.num_microbatches());
      EXPECT_TRUE(!says("stages wait for messages") || b.pipeline == 1);
    }
  EXPECT_GT(told, 50);
}

// Of several differences the one that counts for more.
TEST(WhySlower, the_larger_cause_is_told) {
  const auto reason = [](const PlanProblem& problem, Index batch, const char* slow, const char* best) {
    return why_slower(problem, price_layout(problem, layout_of(slow, batch)),
                      price_layout(problem, layout_of(best, batch)));
  };
  // 40 layers on 32 stages: a stage has two of them or one.
  EXPECT_THAT(reason(problem_of("gpt3-13b", "a100-80:4"), 1024, "pipeline=32,micro_batch=1",
                     "data=32,zero=3,micro_batch=4,recompute=full"),
              HasSubstr("its busiest stage has"));
  PlanProblem trillion = problem_of("gpt-1t", "a100-80:2048");
  trillion.cluster.network.bandwidth = trillion.cluster.network.alone = 6e9;
  const std::string best = "tensor=8,pipeline=32,data=64,recompute=full,virtual_stages=4";
  EXPECT_THAT(reason(trillion, 3072, "tensor=8,pipeline=16,data=128,recompute=full,virtual_stages=4", best.c_str()),
              HasSubstr("each rank sums gradients of 2 times as many weights"));
  EXPECT_THAT(reason(trillion, 3072, "tensor=8,pipeline=32,data=64,recompute=full", best.c_str()),
              HasSubstr("1 virtual stage per stage instead of 4"));
}

// The same pair has the same reason among the plain ideas and among the meshes, however far down it stands.
TEST(WhySlower, a_pair_has_one_reason) {
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  const SearchResult result = search_layouts(problem, {.num_devices = 32, .global_batch = 512}, 2);
  for (const Rejection& rejection : result.rejections)
    if (rejection.verdict == Verdict::slower) {
      EXPECT_EQ(rejection.reason, why_slower(problem, price_layout(problem, rejection.layout), result.ranking.front()))
          << rejection.layout.text();
    }
}

TEST(WhySlower, times_have_the_digits_that_tell_them_apart) {
  EXPECT_EQ(time_text(0.46302, " against ", 0.46341), "0.463 s against 0.4634 s");
  EXPECT_EQ(time_text(0.4634, " against ", 0.4634), "0.463 s against 0.463 s");
  EXPECT_EQ(time_text(64.0, " against ", 63.9), "64 s against 63.9 s");
  EXPECT_EQ(time_text(1234.4), "1234 s");
  EXPECT_EQ(time_text(999.7), "999.7 s");
  EXPECT_EQ(time_text(0), "0 s");
  const PlanProblem problem = problem_of("gpt2-124m", "a100-80", 1024);
  LayoutPrice best = price_layout(problem, layout_of("data=8", 64));
  LayoutPrice slower = best;
  slower.step_seconds *= 1.0003;
  slower[Phase::other] += slower.step_seconds - best.step_seconds;
  const std::string reason = why_slower(problem, slower, best);
  EXPECT_THAT(reason, StartsWith("slower by 0.03 % ("));
  EXPECT_THAT(why_slower(problem, best, best), StartsWith("as fast ("));
}

// --fix does not bind an idea that would be none with it, and its text says so.
TEST(PlainIdeas, plain_ideas_have_their_own_choices) {
  LayoutSpace space{.num_devices = 32, .global_batch = 512};
  fix_choices(space, "tensor=4,pipeline=4,recompute=selective");
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  const LayoutPrice best = search_layouts(problem, space).ranking.front();
  for (const auto& [name, rejection] : plain_rejections(problem, space, &best)) {
    const bool says = rejection.reason.find("(estimated with its own tensor, ") != std::string::npos;
    EXPECT_EQ(says, rejection.verdict != Verdict::impossible) << name << ": " << rejection.reason;
  }
  for (const auto& [name, rejection] : plain_rejections(problem, {.num_devices = 32, .global_batch = 512}, &best))
    EXPECT_THAT(rejection.reason, Not(HasSubstr("its own"))) << name;
}

// A stage has a layer or more, and the stages divide the devices.
TEST(PlainIdeas, the_deepest_pipeline_has_the_most_stages_that_are_possible) {
  struct Case {
    Index layers;
    int devices;
    int stages;
  };
  for (const Case& each : {Case{48, 64, 32}, {12, 16, 8}, {31, 64, 16}, {96, 8, 8}}) {
    PlanProblem problem = problem_of("gpt2-124m", "a100-80:8", 1024);
    problem.model.num_layers = each.layers;
    const LayoutSpace space{.num_devices = each.devices, .global_batch = 64};
    std::vector<std::string> names;
    for (const auto& [name, rejection] : plain_rejections(problem, space, nullptr))
      if (rejection.layout.pipeline > 1) {
        names.push_back(name);
        EXPECT_EQ(rejection.layout.pipeline, each.stages) << name << ", " << each.layers << " layers";
      }
    EXPECT_THAT(names,
                ElementsAre("the deepest pipeline, without micro-batches", "the deepest pipeline, with micro-batches"));
  }
}

// Where a search found nothing, ideas that would fit are told with what keeps them out.
TEST(PlainIdeas, nothing_chosen_leaves_ideas_that_fit) {
  LayoutSpace space{.num_devices = 8, .global_batch = 64};
  fix_choices(space, "tensor=1,pipeline=1,zero=0");
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:1");
  ASSERT_TRUE(search_layouts(problem, space).ranking.empty());
  std::string text;
  for (const auto& [name, rejection] : plain_rejections(problem, space, nullptr)) {
    text += name + ": " + rejection.reason + "\n";
    EXPECT_NE(rejection.verdict, Verdict::slower) << "than what?";
  }
  EXPECT_THAT(text, HasSubstr("data parallelism alone: does not fit: stage 0 needs"));
  EXPECT_THAT(text, HasSubstr("data parallelism with ZeRO-3: fits, but the fixed choices exclude it"));
}

// A sequence of 32768 tokens wants ranks that share it; where that was not searched, it is told what it would bring.
TEST(PlainIdeas, long_sequences_are_told_of_context_parallelism) {
  const PlanProblem problem = problem_of("gpt-22b", "h100:2", 32768);
  LayoutSpace space{.num_devices = 16, .global_batch = 64};
  const auto told = [&] {
    const SearchResult result = search_layouts(problem, space);
    for (const auto& [name, rejection] : plain_rejections(problem, space, &result.ranking.front()))
      if (name == "context parallelism")
        return rejection.reason;
    return std::string();
  };
  EXPECT_THAT(told(), StartsWith("faster by "));
  EXPECT_THAT(told(), HasSubstr("but it was not searched (--context searches it"));
  space.only_runnable = true;
  EXPECT_THAT(told(), HasSubstr("but train has no context parallelism yet"));
  space.only_runnable = false;
  space.tries_context = true;
  EXPECT_EQ(told(), "");
  EXPECT_GT(search_layouts(problem, space).ranking.front().layout.context, 1);
}

TEST(PlainIdeas, plain_ideas_are_rejected_for_what_they_are) {
  const auto reasons = [](const PlanProblem& problem, const LayoutSpace& space, const char* best) {
    std::string text;
    const LayoutPrice price = price_layout(problem, layout_of(best, space.global_batch));
    for (const PlainRejection& each : plain_rejections(problem, space, &price))
      text += each.name + ": " + each.rejection.reason + "\n";
    return text;
  };
  const PlanProblem small = problem_of("gpt2-124m", "a100-80:1", 1024);
  EXPECT_EQ(reasons(small, {.num_devices = 1, .global_batch = 1}, "data=1"), "");
  const std::string chosen = reasons(small, {.num_devices = 8, .global_batch = 8}, "data=8");
  EXPECT_THAT(chosen, Not(HasSubstr("data parallelism alone")));
  const std::string faster = reasons(small, {.num_devices = 8, .global_batch = 8}, "tensor=4,pipeline=2");
  EXPECT_THAT(faster, StartsWith("data parallelism alone: faster by "));
  EXPECT_THAT(faster, HasSubstr("but it was not searched"));
  const std::string fixed = reasons(small, {.num_devices = 8, .global_batch = 8, .tensor = 4}, "tensor=4,pipeline=2");
  EXPECT_THAT(fixed, HasSubstr("but the fixed choices exclude it"));
  EXPECT_THAT(faster, Not(HasSubstr("slower by -")));
  const std::string fewer = reasons(problem_of("gpt-22b", "h100:64"), {.num_devices = 512, .global_batch = 256},
                                    "tensor=4,data=128,pipeline=1");
  EXPECT_THAT(
      fewer,
      StartsWith("data parallelism alone: global_batch_size 256 is not divisible by micro_batch_size 1 x data 512"));
  EXPECT_THAT(fewer, HasSubstr("(nearest: 512); with a batch that divides it does not fit: stage 0 needs"));
  // An idea is rejected for what is best about it, not for choices that nobody would make with it.
  const LayoutSpace many{.num_devices = 512, .global_batch = 1024};
  const std::string large = reasons(problem_of("gpt-200b", "a100-80:64"), many, "tensor=8,pipeline=16,data=4");
  EXPECT_THAT(large, HasSubstr("data parallelism with ZeRO-3: "));
  EXPECT_THAT(large, Not(HasSubstr("ZeRO-3: does not fit"))) << "it fits where blocks are recomputed";
  const std::string zero = reasons(small, {.num_devices = 8, .global_batch = 64}, "data=8,zero=3,micro_batch=4");
  EXPECT_THAT(zero, Not(HasSubstr("with ZeRO-3"))) << "is what was chosen";
  EXPECT_THAT(zero, HasSubstr("data parallelism alone"));
}

}  // namespace
