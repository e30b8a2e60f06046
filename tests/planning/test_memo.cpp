// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "core/memory_text.hpp"
#include "core/number_format.hpp"
#include "io/markup.hpp"
#include "models/presets.hpp"
#include "planning/common_layout.hpp"
#include "planning/layout_limits.hpp"
#include "planning/layout_option.hpp"
#include "planning/memo.hpp"
#include "planning/memo_parts.hpp"
#include "planning/mitigation.hpp"
#include "planning/run_cost.hpp"
#include "planning/runnable.hpp"
#include "planning/time_text.hpp"

using namespace espalier;
using testing::HasSubstr;
using testing::Not;

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
  written.problem.model_name = model;
  written.problem.cluster = cluster_preset(cluster);
  written.problem.implementation = espalier_implementation();
  written.problem.sequence_length = 2048;
  written.space = {.num_devices = devices, .global_batch = batch};
  written.space.precisions = {precision};
  if (*fixed != '\0')
    fix_choices(written.space, fixed);
  written.result = search_layouts(written.problem, written.space);
  written.text = memo(written.problem, written.space, written.result, {});
  return written;
}

// Where names may stand: model, cluster and device, in sentences, headings and tables.
TEST(Memo, names_from_files_are_text) {
  const std::string hostile = "a|b <script>x</script> **bold** [c](http://d) `e` \\ ~~f~~ _g_\n# h\x1B[2J &amp; $i$";
  Written written = write("gpt2-1558m", "a100-80", 8, 64, "");
  written.problem.model_name = written.problem.cluster.name = written.problem.cluster.device.name = hostile;
  const std::string one = memo(written.problem, written.space, written.result, {});
  const std::vector<PlanProblem> problems(2, written.problem);
  const LayoutPrice& best = written.result.ranking.front();
  const CommonLayout common{.layout = best.layout, .prices = {best, best}, .bests = {best, best}};
  for (const std::string& text : {one, common_memo(problems, written.space, common, {})}) {
    EXPECT_THAT(text, HasSubstr(markdown_escaped(hostile)));
    for (const char* const markup :
         {"a|b", "<script", "</script", "**bold", "[c]", " `e", "~~f", "_g_", "\n# h", "\x1B", "&amp; $", " $i"})
      EXPECT_THAT(text, Not(HasSubstr(markup))) << markup;
  }
}

TEST(Memo, of_gpus_says_that_nothing_has_run_on_one) {
  EXPECT_THAT(write("gpt2-1558m", "a100-80", 8, 64, "").text,
              HasSubstr("**Nothing has run on several GPUs yet.** All times are predicted.\n"));
  Written cpu = write("gpt2-1558m", "a100-80", 8, 64, "");
  cpu.problem.cluster.device.moves_messages = true;
  EXPECT_THAT(memo(cpu.problem, cpu.space, cpu.result, {}), Not(HasSubstr(gpu_caveat)));
}

TEST(Memo, answers_every_question) {
  const Written memo = write("gpt3-175b", "a100-80:16", 128, 256, "pipeline=8");
  for (const char* heading :
       {"## Question", "## Answer", "## Why", "## What limits it", "## What to do first",
        "## What would change the answer", "## How sure we are", "# Details", "## How it fits in memory",
        "## Where gradients are synchronised", "## What micro-batches do", "## Precision",
        "What stays in fp32, and why", "## What could be changed", "## What else was considered"})
    EXPECT_THAT(memo.text, HasSubstr(heading));
  EXPECT_THAT(memo.text, HasSubstr(memo.result.ranking.front().layout.text()));
}

TEST(Memo, what_attention_holds_is_told_where_it_may) {
  const Written memo = write("gpt2-1558m", "a100-80", 8, 64, "tensor=1,micro_batch=4");
  EXPECT_THAT(memo.text, HasSubstr("200.0 MiB of the workspace are for cuDNN's attention"));
  EXPECT_THAT(write("gpt2-1558m", "a100-80", 8, 64, "", Precision::fp32).text, Not(HasSubstr("cuDNN")));
}

// No number is canned: another machine and model, another memo, with the numbers of its own best layout.
TEST(Memo, numbers_come_from_the_model) {
  const Written one = write("gpt3-175b", "a100-80:16", 128, 256, "");
  const Written other = write("gpt-30b", "h100:4", 32, 256, "");
  for (const Written* memo : {&one, &other}) {
    const LayoutPrice& best = memo->result.ranking.front();
    EXPECT_THAT(memo->text, HasSubstr(fmt::format("| time of a step | {:.3g} s |", best.step_seconds)));
    EXPECT_THAT(memo->text, HasSubstr(fmt::format("MFU {:.1f} % of ", 100 * best.flops_shares.shown())));
  }
  EXPECT_THAT(other.text, Not(HasSubstr("174.6")));
  EXPECT_THAT(one.text, HasSubstr("174.6 billion"));
}

TEST(Memo, the_first_mitigation_is_priced) {
  const Written memo = write("gpt3-175b", "a100-80:16", 128, 64, "pipeline=16,tensor=8,schedule=1f1b,virtual_stages=1");
  const LayoutPrice& best = memo.result.ranking.front();
  EXPECT_EQ(bottleneck(best).name(), "bubble");
  const std::vector<Mitigation> options = mitigations(memo.problem, memo.space, best);
  ASSERT_FALSE(options.empty());
  EXPECT_TRUE(options.front().relieves_bottleneck());
  EXPECT_GT(options.front().gain, 0);
  const auto place = [](const Mitigation& m) {
    return std::tuple(!m.relieves_bottleneck(), !m.helps(), !m.lacks.empty(), !m.condition.empty(), -m.gain);
  };
  for (std::size_t i = 1; i < options.size(); ++i)
    EXPECT_LE(place(options[i - 1]), place(options[i])) << options[i].change;
  EXPECT_THAT(memo.text, HasSubstr("For the same tokens, bubble takes "));
  for (const Mitigation& option : options) {
    EXPECT_NEAR(option.gain, option.price.tokens_per_second / best.tokens_per_second - 1, 1e-12);
    const double bubble = comparable_seconds(option.price, best, option.price[Phase::bubble]);
    EXPECT_NEAR(option.saved, (best[Phase::bubble] - bubble) / best.step_seconds, 1e-12);
    if (option.change.starts_with("the zero-bubble schedule")) {
      EXPECT_EQ(option.condition, "if schedule may change");
    }
  }
}

// A whole layout is told by its mesh.
std::string told(const Mitigation& option) {
  return option.change == option.price.layout.text() ? mesh_text(option.price.layout) : option.change;
}

// What is to be tried first shortens what the memo calls the bottleneck; where nothing does, the memo says so first.
TEST(Memo, the_first_mitigation_answers_the_bottleneck) {
  struct Case {
    const char* model;
    const char* cluster;
    Index batch;
    Precision precision;
  };
  bool first = false;
  bool elsewhere = false;
  for (const Case& each : {Case{"gpt2-124m", "cpu:8", 64, Precision::fp32},
                           {"gpt2-124m", "a100-80", 512, Precision::bf16},
                           {"gpt2-1558m", "v100:2", 64, Precision::fp16},
                           {"gpt-22b", "a100-80:4", 128, Precision::bf16},
                           {"gpt-30b", "a100-80", 256, Precision::bf16},
                           {"gpt3-175b", "v100:64", 512, Precision::fp16},
                           {"gpt3-175b", "a100-80:128", 1536, Precision::bf16},
                           {"llama3-8b", "h100", 64, Precision::bf16},
                           {"llama3-70b", "h100:8", 512, Precision::bf16},
                           {"llama-3.1-405b", "h100:64", 512, Precision::fp8}}) {
    const PlanProblem problem = {.model = model_preset(each.model),
                                 .cluster = cluster_preset(each.cluster),
                                 .implementation = espalier_implementation(),
                                 .sequence_length = 1024};
    LayoutSpace space{.num_devices = problem.cluster.num_devices(), .global_batch = each.batch};
    space.precisions = {each.precision};
    const SearchResult result = search_layouts(problem, space);
    ASSERT_FALSE(result.ranking.empty()) << each.model;
    const LayoutPrice& best = result.ranking.front();
    const std::string text = memo(problem, space, result, {});
    const std::string name = bottleneck(best).name();
    const std::vector<Mitigation> options = mitigations(problem, space, best);
    const auto helps = [](const Mitigation& option) { return option.is_ready() && option.helps(); };
    const auto answer =
        std::ranges::find_if(options, [&](const Mitigation& m) { return m.relieves_bottleneck() && helps(m); });
    if (answer != options.end()) {
      first = true;
      EXPECT_THAT(text, HasSubstr("First try " + told(*answer)));
      EXPECT_THAT(text, HasSubstr("For the same tokens, " + name + " take"));
      continue;
    }
    const auto other = std::find_if(options.begin(), options.end(), helps);
    elsewhere = true;
    const bool none = other == options.end();
    EXPECT_EQ(text.find("First try ") == std::string::npos, none) << text;
    const std::string wanted =
        none ? "No single change that fits and keeps your fixed choices raises throughput by more than 0.5 %"
             : "First try " + told(*other) + ". It does not shorten the bottleneck";
    EXPECT_THAT(text, HasSubstr(wanted));
  }
  EXPECT_TRUE(first) << "no case with an answer";
  EXPECT_TRUE(elsewhere) << "no case without";
}

// What was given stays, as long as something that leaves it alone answers the bottleneck.
TEST(Memo, changes_of_what_was_given_come_after) {
  const Written memo = write("gpt3-175b", "a100-80:16", 128, 64, "pipeline=16,tensor=8");
  const LayoutPrice slow = price_layout(
      memo.problem, parse_layout("pipeline=16,tensor=8", {.global_batch = 64}));  // 16 stages, no chunks: a bubble
  ASSERT_EQ(bottleneck(slow).name(), "bubble");
  const std::vector<Mitigation> options = mitigations(memo.problem, memo.space, slow);
  const auto batch = std::find_if(options.begin(), options.end(), [](const Mitigation& option) {
    return option.change.starts_with("a global batch of 128 sequences");
  });
  ASSERT_NE(batch, options.end());
  EXPECT_EQ(batch->condition, "if the batch may change");
  ASSERT_TRUE(batch->relieves_bottleneck() && batch->helps());
  EXPECT_TRUE(options.front().relieves_bottleneck() && options.front().helps() && options.front().is_ready())
      << options.front().change;
  EXPECT_THAT(memo.text, Not(HasSubstr("irst try a global batch")));
  EXPECT_THAT(memo.text, HasSubstr("| if the batch may change |"));
  const Written free = write("gpt-200b", "a100-40:64", 512, 1024, "zero=1");
  EXPECT_THAT(free.text, HasSubstr("If the batch may change: a global batch of 2048 sequences"));
}

// One stage is compared with the split that somebody would try who has no other means, and that is said.
TEST(Memo, one_stage_is_compared_with_a_split_that_fits) {
  const Written memo = write("gpt-22b", "h100:2", 16, 64, "pipeline=1");
  const std::size_t split =
      memo.text.find("For comparison take 8 stages of 2 replicas (recompute none), the smallest number of stages");
  ASSERT_NE(split, std::string::npos) << memo.text;  // 370 GiB of states over 74
  EXPECT_NE(
      memo.text.find("Without micro-batches the 8 stages work one after another on a replica's 32 sequences", split),
      std::string::npos)
      << memo.text;
  EXPECT_NE(memo.text.find("The recommended layout takes ", split), std::string::npos) << memo.text;
}

// Only what is there is summed, and a single micro-batch is told with the schedule that runs it.
TEST(Memo, one_micro_batch_is_told_as_it_is) {
  const Written alone = write("gpt2-124m", "a100-80:1x1", 1, 4, "micro_batch=4");
  EXPECT_THAT(alone.text, HasSubstr("1 micro-batch of 4 sequences holds all activations"));
  EXPECT_THAT(alone.text, Not(HasSubstr("summed over")));
  EXPECT_THAT(alone.text, Not(HasSubstr("large sum")));
  const Written stages = write("gpt2-124m", "a100-80:1x4", 4, 4, "pipeline=4,micro_batch=4,schedule=zero_bubble");
  const LayoutPrice& best = stages.result.ranking.front();
  EXPECT_THAT(stages.text,
              HasSubstr(fmt::format("With 1 micro-batch of 4 (zero_bubble) {:.1f} % is idle. A step takes {}. ",
                                    100 * best.idle_share, time_text(best.step_seconds))));
  const Written plain = write("gpt2-124m", "a100-80:1x4", 4, 4, "pipeline=4,micro_batch=4,schedule=1f1b");
  EXPECT_THAT(plain.text, Not(HasSubstr("With 1 micro-batch")));
}

// What is faster and does not fit is not offered without saying so.
TEST(Memo, layouts_that_do_not_fit_are_marked) {
  const Written memo = write("gpt-30b", "a100-80:1", 8, 256, "pipeline=4");
  const std::size_t half = memo.text.find("With half as many micro-batches of twice the size");
  ASSERT_NE(half, std::string::npos);
  Layout layout = memo.result.ranking.front().layout;
  layout.micro_batch *= 2;
  ASSERT_NE(why_too_large(memo.problem, price_layout(memo.problem, layout)), "");
  EXPECT_NE(memo.text.find("(does not fit", half), std::string::npos);
}

// Not every device has fp16 or bf16, nor every machine a network.
TEST(Memo, sentences_hold_for_other_machines) {
  const Written cpu = write("gpt2-124m", "cpu:8", 8, 64, "", Precision::fp32);
  for (const char* const false_here : {"fp16", "significand", "half as large", "What stays in fp32"})
    EXPECT_THAT(cpu.text, Not(HasSubstr(false_here)));
  const Written cpu_bf16 = write("gpt2-124m", "cpu:8", 8, 64, "");
  EXPECT_THAT(cpu_bf16.text, Not(HasSubstr("fp16")));
  const Written volta = write("gpt-22b", "v100:16", 128, 256, "", Precision::fp16);
  EXPECT_THAT(volta.text, HasSubstr("This device does not have it."));
  const Written one_node = write("gpt-30b", "a100-80:1", 8, 256, "");
  EXPECT_THAT(one_node.text, Not(HasSubstr("network bandwidth")));
  EXPECT_THAT(one_node.text, Not(HasSubstr("between nodes")));
}

// With ZeRO-3 micro-batches cost gathers, which overlap with other work as far as they can.
TEST(Memo, zero_3_is_told_as_it_is) {
  const Written memo = write("gpt-30b", "a100-80:1", 8, 256, "zero=3,tensor=2,pipeline=1");
  EXPECT_THAT(memo.text, HasSubstr("and each gathers the weights again"));
  EXPECT_THAT(memo.text, HasSubstr("summed after every micro-batch"));
  const LayoutPrice& best = memo.result.ranking.front();
  ASSERT_GT(best.overlapped_data_seconds, 0);
  EXPECT_THAT(memo.text, HasSubstr(fmt::format("{} overlap with other work", time_text(best.overlapped_data_seconds))));
  EXPECT_THAT(memo.text, HasSubstr("Without this overlap a step would take "));
  for (const char* const false_here : {"only limit", "Then all weights are gathered", "once per step", "last backward"})
    EXPECT_THAT(memo.text, Not(HasSubstr(false_here)));
}

// A step of twice the tokens may take twice the time of any phase.
TEST(Memo, gains_are_compared_for_as_many_tokens) {
  const Written memo = write("gpt3-175b", "a100-80:16", 128, 256, "");
  const LayoutPrice& best = memo.result.ranking.front();
  const std::vector<Mitigation> options = mitigations(memo.problem, memo.space, best);
  const auto larger = std::find_if(options.begin(), options.end(), [](const Mitigation& option) {
    return option.change.starts_with("a global batch");
  });
  ASSERT_NE(larger, options.end());
  ASSERT_GT(larger->gain, 0);
  const std::size_t row = memo.text.find("| " + larger->change + " | ");
  ASSERT_NE(row, std::string::npos);
  const std::size_t cell = memo.text.find(" s instead of ", row);
  ASSERT_NE(cell, std::string::npos);
  const double after = std::stod(memo.text.substr(memo.text.rfind(' ', cell - 1)));
  const double before = std::stod(memo.text.substr(cell + 14));
  EXPECT_LT(after, before);
}

TEST(Memo, formats_are_what_their_standards_say) {
  EXPECT_EQ(fp32_format.largest, std::numeric_limits<float>::max());
  EXPECT_EQ(fp32_format.smallest_normal(), std::numeric_limits<float>::min());
  EXPECT_EQ(fp32_format.least(), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(fp32_format.lost_update(), std::numeric_limits<float>::epsilon() / 4);
  for (const NumberFormat& format : {fp32_format, tf32_format, fp16_format, bf16_format, e5m2_format})
    EXPECT_EQ(format.largest,
              std::ldexp(2 - std::ldexp(1.0, -format.significand_bits), (1 << (format.exponent_bits - 1)) - 1))
        << format.name;
  EXPECT_EQ(e4m3_format.largest, 448);  // its highest exponent has numbers, too: 1.75 x 2^8
  EXPECT_NEAR(fp16_format.smallest_normal(), 6.1e-5, 1e-6);
  EXPECT_EQ(bf16_format.exponent_bits, fp32_format.exponent_bits);
}

TEST(Memo, types_of_16_bits_are_told_by_their_bits) {
  const Written half = write("gpt-22b", "v100:16", 128, 256, "", Precision::fp16);
  for (const char* const text :
       {"fp16 stores 10 bits of the significand and 5 of the exponent. Its largest number is 65504, and it loses "
        "digits "
        "below 6.1e-05",
        "gradients need a loss scale", "fp16 stores 10 bits of the significand, fp32 23", "Values below 3e-08 become 0",
        "less than 0.024 % of its weight", "bf16 has the range of fp32 (8 bits of the exponent) for 7 stored bits"})
    EXPECT_THAT(half.text, HasSubstr(text));
  const Written brain = write("gpt-22b", "a100-80:4", 32, 128, "");
  for (const char* const text : {"bf16 stores 7 bits of the significand, fp32 23", "less than 0.2 % of its weight",
                                 "bf16 has the range of fp32, so no loss scaling is needed", "largest number is 65504"})
    EXPECT_THAT(brain.text, HasSubstr(text));
}

// fp8 makes products faster and nothing smaller.
TEST(Memo, fp8_is_told_as_it_is) {
  const Written memo = write("gpt3-13b", "h100:2", 16, 128, "", Precision::fp8);
  const LayoutPrice& best = memo.result.ranking.front();
  Layout layout = best.layout;
  layout.precision = Precision::bf16;
  const LayoutPrice bf16 = price_layout(memo.problem, layout);
  EXPECT_EQ(bf16.memory_bytes, best.memory_bytes);
  EXPECT_LT(best.step_seconds, bf16.step_seconds);
  for (const std::string& text :
       {fmt::format("Matmuls in fp8: {:.3g} s per step", best.step_seconds),
        fmt::format("In bf16: {:.3g} s per step", bf16.step_seconds), std::string("faster, but saves no memory"),
        std::string("What stays in bf16, and why"), std::string("What stays in fp32, and why"),
        std::string("fp8 (e4m3) stores 3 bits of the significand and 4 of the exponent. Its largest number is 448"),
        std::string("fp8 (e5m2) stores 2 bits of the significand and 5 of the exponent. Its largest number is 57344"),
        std::string("`train` does not compute in fp8 yet, so this layout is only estimated"),
        std::string("bf16 stores 7 bits"), std::string("FLOP/s in fp8")})
    EXPECT_THAT(memo.text, HasSubstr(text));
}

// One replica is not one rank: stages that share a table and tensor ranks that see other rows sum gradients.
TEST(Memo, gradients_are_summed_wherever_ranks_share_them) {
  const Written stages = write("gpt-30b", "a100-80:1", 8, 256, "data=1,pipeline=4,tensor=2,sequence_parallel=1");
  const LayoutPrice& best = stages.result.ranking.front();
  EXPECT_GT(best.tied_seconds, 0);
  EXPECT_NEAR(best[Phase::data_comm], best.tied_seconds, 1e-12);
  const std::string table = bytes_text(static_cast<std::size_t>(50304.0 * 7168 / 2 * 4));
  for (const std::string& text :
       {std::string("There is one replica"), fmt::format("a part of its gradient, {} per rank", table),
        fmt::format("inside the node. That takes {:.3g} s", best.tied_seconds),
        std::string("each of the 2 tensor ranks computes other rows"),
        std::string("norms, biases of row-parallel matmuls, positions")})
    EXPECT_THAT(stages.text, HasSubstr(text));
  const Written alone = write("gpt2-124m", "a100-80:1x1", 1, 64, "");
  EXPECT_THAT(alone.text, HasSubstr("No other rank has a part of them"));
  const Written whole_rows = write("gpt-30b", "a100-80:1", 8, 256, "data=1,pipeline=1,tensor=8,sequence_parallel=0");
  EXPECT_THAT(whole_rows.text, HasSubstr("no gradient of a weight is summed among them"));
  // Each tensor rank has the norms of Q and K for its own heads: 2 x 128 values a block.
  const Written norms = write("qwen3-8b", "a100-80:1", 8, 256, "data=1,pipeline=1,tensor=8,sequence_parallel=0");
  EXPECT_THAT(norms.text, Not(HasSubstr("no gradient of a weight is summed among them")));
  EXPECT_THAT(norms.text,
              HasSubstr("Each applies the norms of Q and K to its own heads. The gradients of these norms are summed"));
  // What the replicas wait for is theirs alone.
  const Written both = write("gpt-22b", "a100-80:4", 32, 512, "data=8,pipeline=4,tensor=1,zero=1");
  const LayoutPrice& price = both.result.ranking.front();
  const double waited = price[Phase::data_comm] - price.tied_seconds;
  EXPECT_THAT(both.text, HasSubstr(fmt::format("per step. A step waits for {} (", time_text(waited))));
  EXPECT_THAT(both.text,
              HasSubstr("The token embedding is also the head. The first and the last stage each compute a part"));
  const Written untied = write("llama3-70b", "h100:8", 64, 512, "pipeline=4,tensor=16");
  EXPECT_THAT(untied.text, Not(HasSubstr("The token embedding is also the head")));
  EXPECT_THAT(untied.text, HasSubstr("2 tensor ranks hold copies of each of the 8 heads of keys and values"));
}

TEST(Memo, goals_are_named_with_their_margin) {
  const Written memo = write("gpt-22b", "a100-80:4", 32, 128, "");
  const LayoutPrice& best = memo.result.ranking.front();
  const auto with = [&](const Goal& goal) { return espalier::memo(memo.problem, memo.space, memo.result, {}, goal); };
  EXPECT_THAT(memo.text, Not(HasSubstr("**Goal.**")));
  const std::string met = with({.most_step_seconds = 1.04 * best.step_seconds, .least_tokens_per_second = {}});
  EXPECT_THAT(met, HasSubstr(fmt::format(
                       "**Goal.** A step of at most {:.4g} s: met with {:.4g} s, 3.8 % to spare. This is less "
                       "than the range of the prediction, so the run may miss the goal.",
                       1.04 * best.step_seconds, best.step_seconds)));
  const std::string missed = with({.most_step_seconds = {}, .least_tokens_per_second = 2 * best.tokens_per_second});
  EXPECT_THAT(missed, HasSubstr("tokens per second: missed by 50.0 %"));
  EXPECT_THAT(missed, HasSubstr(fmt::format("the best is {} tokens per second (--min-tokens-per-second ",
                                            rounded_text(best.tokens_per_second, 4))));
}

}  // namespace
