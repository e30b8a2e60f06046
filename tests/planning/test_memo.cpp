// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

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

Written write(const char* model, const char* cluster, int devices, Index batch, const char* fixed) {
  Written written;
  written.problem.model = model_preset(model);
  written.problem.cluster = cluster_preset(cluster);
  written.problem.sequence_length = 2048;
  written.space = {.num_devices = devices, .global_batch = batch};
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
  for (const Mitigation& option : options)
    EXPECT_NEAR(option.gain, option.price.tokens_per_second / best.tokens_per_second - 1, 1e-12);
}

}  // namespace
