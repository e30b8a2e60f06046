// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "planning/memo.hpp"
#include "planning/mitigation.hpp"

using namespace espalier;

namespace {

struct Written {
  PlanProblem problem;
  LayoutSpace space;
  SearchResult result;
  std::string text;
};

Written write(const char* model, const char* cluster, int devices, Index batch, const char* fixed,
              Precision precision = Precision::bf16) {
  Written written;
  written.problem.model = model_preset(model);
  written.problem.cluster = cluster_preset(cluster);
  written.problem.sequence_length = 2048;
  written.space = {.num_devices = devices, .global_batch = batch};
  written.space.precisions = {precision};
  if (*fixed != '\0')
    fix_choices(written.space, fixed);
  written.result = search_layouts(written.problem, written.space);
  written.text = memo(written.problem, written.space, written.result, {});
  return written;
}

TEST(Memo, answers_every_question) {
  const Written memo = write("gpt3-175b", "a100-80:16", 128, 256, "pipeline=8");
  for (const char* heading :
       {"## How it fits in memory", "## Where gradients are synchronised", "## What micro-batches do", "## Precision",
        "What stays in fp32, and why", "## The most likely bottleneck", "## What else was considered"})
    EXPECT_NE(memo.text.find(heading), std::string::npos) << heading;
  EXPECT_NE(memo.text.find(memo.result.ranking.front().layout.text()), std::string::npos);
}

// No number is canned: another machine and model, another memo, with the numbers of its own best layout.
TEST(Memo, numbers_come_from_the_model) {
  const Written one = write("gpt3-175b", "a100-80:16", 128, 256, "");
  const Written other = write("gpt-30b", "h100:4", 32, 256, "");
  for (const Written* memo : {&one, &other}) {
    const LayoutPrice& best = memo->result.ranking.front();
    EXPECT_NE(memo->text.find(fmt::format("{:.3g} s a step", best.step_seconds)), std::string::npos);
    EXPECT_NE(memo->text.find(fmt::format("MFU {:.1f} %", 100 * best.model_flops_share)), std::string::npos);
  }
  EXPECT_EQ(other.text.find("174.6"), std::string::npos);
  EXPECT_NE(one.text.find("174.6 billion"), std::string::npos);
}

TEST(Memo, the_first_mitigation_is_priced) {
  const Written memo = write("gpt3-175b", "a100-80:16", 128, 64, "pipeline=16,tensor=8,schedule=1f1b,virtual_stages=1");
  const LayoutPrice& best = memo.result.ranking.front();
  EXPECT_EQ(bottleneck(best), PlanPhase::bubble);
  const std::vector<Mitigation> options = mitigations(memo.problem, best);
  ASSERT_FALSE(options.empty());
  EXPECT_GT(options.front().gain, 0);
  for (std::size_t i = 1; i < options.size(); ++i)
    EXPECT_GE(options[i - 1].gain, options[i].gain);
  EXPECT_NE(memo.text.find("First try " + options.front().change), std::string::npos);
  EXPECT_NE(memo.text.find("most of it in bubble"), std::string::npos);
  for (const Mitigation& option : options)
    EXPECT_NEAR(option.gain, option.price.tokens_per_second / best.tokens_per_second - 1, 1e-12);
}

// What is faster and does not fit is not offered without saying so.
TEST(Memo, layouts_that_do_not_fit_are_marked) {
  const Written memo = write("gpt-30b", "a100-80:1", 8, 256, "");
  const std::size_t half = memo.text.find("Half as many, twice as large");
  ASSERT_NE(half, std::string::npos);
  PlanLayout layout = memo.result.ranking.front().layout;
  layout.micro_batch *= 2;
  ASSERT_NE(why_too_large(memo.problem, price_layout(memo.problem, layout)), "");
  EXPECT_NE(memo.text.find("which does not fit", half), std::string::npos);
}

// Not every device has fp16 or bf16, nor every machine a network.
TEST(Memo, sentences_hold_for_other_machines) {
  const Written cpu = write("gpt2-124m", "cpu:8", 8, 64, "", Precision::fp32);
  for (const char* const false_here : {"fp16", "mantissa", "half as large", "What stays in fp32"})
    EXPECT_EQ(cpu.text.find(false_here), std::string::npos) << false_here << "\n" << cpu.text;
  const Written cpu_bf16 = write("gpt2-124m", "cpu:8", 8, 64, "");
  EXPECT_EQ(cpu_bf16.text.find("fp16"), std::string::npos);
  const Written volta = write("gpt-22b", "v100:16", 128, 256, "", Precision::fp16);
  EXPECT_NE(volta.text.find("but this device has none"), std::string::npos);
  const Written one_node = write("gpt-30b", "a100-80:1", 8, 256, "");
  EXPECT_EQ(one_node.text.find("network bandwidth"), std::string::npos);
  EXPECT_EQ(one_node.text.find("between nodes"), std::string::npos);
}

// With ZeRO-3 micro-batches cost gathers, of which other work hides what it can.
TEST(Memo, zero_3_is_told_as_it_is) {
  const Written memo = write("gpt-30b", "a100-80:1", 8, 256, "zero=3,tensor=2,pipeline=1");
  EXPECT_NE(memo.text.find("and each gathers the weights anew"), std::string::npos) << memo.text;
  EXPECT_NE(memo.text.find("summed after every micro-batch"), std::string::npos);
  for (const char* const false_here : {"only bound", "nothing is hidden", "once a step", "last backward"})
    EXPECT_EQ(memo.text.find(false_here), std::string::npos) << false_here;
}

// A step of twice the tokens may take twice the time of any phase.
TEST(Memo, gains_are_compared_for_as_many_tokens) {
  const Written memo = write("gpt3-175b", "a100-80:16", 128, 256, "");
  const LayoutPrice& best = memo.result.ranking.front();
  const std::vector<Mitigation> options = mitigations(memo.problem, best);
  const auto larger = std::find_if(options.begin(), options.end(), [](const Mitigation& option) {
    return option.change.starts_with("a global batch");
  });
  ASSERT_NE(larger, options.end());
  ASSERT_GT(larger->gain, 0);
  const std::size_t row = memo.text.find("| " + larger->change + " | ");
  ASSERT_NE(row, std::string::npos);
  double after = 0;
  double before = 0;
  const std::size_t cell = memo.text.find(" s instead of ", row);
  ASSERT_NE(cell, std::string::npos);
  after = std::stod(memo.text.substr(memo.text.rfind(' ', cell - 1)));
  before = std::stod(memo.text.substr(cell + 14));
  EXPECT_LT(after, before);
}

}  // namespace
