// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "planning/search.hpp"
#include "planning/time_text.hpp"
#include "planning/why_slower.hpp"
#include "tests/planning/problems.hpp"

using namespace espalier;
using espalier::test::layout_of;
using espalier::test::problem_of;

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
  EXPECT_NE(small.find("smaller products (micro-batch 1 instead of 8)"), std::string::npos) << small;
  EXPECT_EQ(reason(nodes, best, best).find("as fast ("), 0u);
  const PlanProblem large = problem_of("gpt-200b", "a100-40:64");
  const std::string deep = reason(large, "tensor=4,pipeline=64,schedule=zero_bubble", "tensor=4,pipeline=16");
  EXPECT_EQ(deep.find("smaller products"), std::string::npos) << deep;
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
      const PlanLayout& a = slow.layout;
      const PlanLayout& b = fast.layout;
      const std::string reason = why_slower(problem, slow, fast);
      SCOPED_TRACE(a.text() + " against " + b.text() + ": " + reason);
      const auto says = [&](const char* text) { return reason.find(text) != std::string::npos; };
      told += says(", ") ? 1 : 0;
      EXPECT_TRUE(!says("tensor ranks lie on several nodes") || !nodes(b.tensor_axis()));
      EXPECT_TRUE(!says("tensor ranks exchange") || a.tensor > b.tensor);
      EXPECT_TRUE(!says("context ranks exchange") || a.context > b.context);
      EXPECT_TRUE(!says("recompute ") || a.recompute > b.recompute || says(" in recompute"));
      EXPECT_TRUE(!says("repeats") || a.recompute > b.recompute);
      EXPECT_TRUE(!says("stages share") ||
                  (a.pipeline - 1) * b.num_microbatches() > (b.pipeline - 1) * a.num_microbatches());
      EXPECT_TRUE(!says("summed over") || a.data * a.context > b.data * b.context);
      EXPECT_TRUE(!says("replicas lie on several nodes") || !nodes(b.data_axis()));
      EXPECT_TRUE(!says("are gathered") || b.zero_stage < 3 || a.num_microbatches() > b.num_microbatches());
      EXPECT_TRUE(!says("messages between stages") || b.pipeline == 1);
    }
  EXPECT_GT(told, 50);
}

// The same pair has the same reason among the plain ideas and among the lattices, however far down it stands.
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
  slower[PlanPhase::other] += slower.step_seconds - best.step_seconds;
  const std::string reason = why_slower(problem, slower, best);
  EXPECT_EQ(reason.find("slower by 0.03 % ("), 0u) << reason;
  EXPECT_EQ(why_slower(problem, best, best).find("as fast ("), 0u);
}

// --fix does not bind an idea that would be none with it, and its text says so.
TEST(PlainIdeas, plain_ideas_have_their_own_choices) {
  LayoutSpace space{.num_devices = 32, .global_batch = 512};
  fix_choices(space, "tensor=4,pipeline=4,recompute=selective");
  const PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  const LayoutPrice best = search_layouts(problem, space).ranking.front();
  for (const auto& [name, rejection] : plain_rejections(problem, space, best)) {
    const bool says = rejection.reason.find("(priced with its own tensor, ") != std::string::npos;
    EXPECT_EQ(says, rejection.verdict != Verdict::impossible) << name << ": " << rejection.reason;
  }
  for (const auto& [name, rejection] : plain_rejections(problem, {.num_devices = 32, .global_batch = 512}, best))
    EXPECT_EQ(rejection.reason.find("its own"), std::string::npos) << name;
}

// A sequence of 32768 tokens wants ranks that share it; where that was not searched, it is told what it would bring.
TEST(PlainIdeas, long_sequences_are_told_of_context_parallelism) {
  const PlanProblem problem = problem_of("gpt-22b", "h100:2", 32768);
  LayoutSpace space{.num_devices = 16, .global_batch = 64};
  const auto told = [&] {
    for (const auto& [name, rejection] :
         plain_rejections(problem, space, search_layouts(problem, space).ranking.front()))
      if (name == "context parallelism")
        return rejection.reason;
    return std::string();
  };
  EXPECT_EQ(told().find("faster by "), 0u) << told();
  EXPECT_NE(told().find("but not searched: --context does"), std::string::npos) << told();
  space.only_runnable = true;
  EXPECT_NE(told().find("but train has no context parallelism yet"), std::string::npos) << told();
  space.only_runnable = false;
  space.tries_context = true;
  EXPECT_EQ(told(), "");
  EXPECT_GT(search_layouts(problem, space).ranking.front().layout.context, 1);
}

TEST(PlainIdeas, plain_ideas_are_rejected_for_what_they_are) {
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
  EXPECT_EQ(faster.find("but train has no ZeRO-3"), std::string::npos) << faster;
  const std::string runnable =
      reasons(small, {.num_devices = 8, .global_batch = 8, .only_runnable = true}, "tensor=4,pipeline=2");
  EXPECT_NE(runnable.find("but train has no ZeRO-3"), std::string::npos) << runnable;
  const std::string fixed = reasons(small, {.num_devices = 8, .global_batch = 8, .tensor = 4}, "tensor=4,pipeline=2");
  EXPECT_NE(fixed.find("but not with the choices that are fixed"), std::string::npos) << fixed;
  EXPECT_EQ(faster.find("slower by -"), std::string::npos) << faster;
  const std::string fewer = reasons(problem_of("gpt-22b", "h100:64"), {.num_devices = 512, .global_batch = 256},
                                    "tensor=4,data=128,pipeline=1");
  EXPECT_EQ(fewer.find("data parallelism alone: micro-batch 1 x data 512 does not divide the global batch of 256"), 0u)
      << fewer;
  EXPECT_NE(fewer.find("(nearest: 512); with a batch that divides it does not fit: stage 0 needs"), std::string::npos)
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

}  // namespace
