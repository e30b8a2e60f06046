// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "core/error.hpp"
#include "io/file.hpp"
#include "tests/published/case_report.hpp"
#include "tests/published/published_sizes.hpp"

namespace espalier {
namespace {

std::vector<PricedCase> price_table(const std::string& text) {
  std::vector<PricedCase> cases;
  for (PublishedCase& read : read_cases(text, "table.csv").cases)
    cases.push_back(price_case(std::move(read)));
  return cases;
}

// What the answers call "9 of 10 published cases".
TEST(PublishedModels, intervals_hold_what_was_measured) {
  int rows = 0;
  int held = 0;
  const auto count = [&](const std::vector<PricedCase>& cases) {
    for (const PricedCase& each : cases) {
      if (!each.price || !each.published.timed)
        continue;
      const auto [low, high] = each.price->step_interval;
      EXPECT_LT(low, each.price->step_seconds);
      EXPECT_GT(high, each.price->step_seconds);
      held += low <= each.published.measured_seconds && each.published.measured_seconds <= high ? 1 : 0;
      ++rows;
    }
  };
  count(price_table(read_file(ESPALIER_PUBLISHED_ROWS, ExitCode::data)));
  count(price_table(read_file(ESPALIER_OTHER_ROWS, ExitCode::data)));
  EXPECT_GT(rows, 95);
  EXPECT_GE(held, 0.85 * rows) << rows;
  EXPECT_LE(held, rows);
}

// A copy of the states on each node would be faster here; it is not what published programs do, unless they say so.
TEST(PublishedModels, states_are_shared_by_all_replicas) {
  const auto cases = price_table(
      "id,source,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision,"
      "zero_stage,recompute,network_gbps,program,iter_time_s\n"
      "zero,x,72,14336,64,250880,2048,A100-80GB,384,4,12,8,2048,2,fp16,1,full,50,splits_messages reduces_all,100\n");
  ASSERT_TRUE(cases[0].price) << cases[0].published.why_not;
  EXPECT_EQ(cases[0].price->layout.shards(), 8);
}

// Experts: more weights and messages than the dense model of a token, the same work.
TEST(PublishedModels, mixtures_of_experts_are_priced) {
  const std::string row = ",x,32,4096,32,14336,32000,4096,H100-80GB,64,1,1,64,256,1,bf16,none,1,swiglu,";
  const auto cases = price_table(
      "id,source,layers,hidden,heads,ffn_hidden,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,"
      "precision,"
      "recompute,iter_time_s,activation,experts,top_k,expert_parallel,model_params\n"
      "one" +
      row + "1,1,1,\n" + "eight" + row + "8,1,8,\n" + "two of eight" + row + "8,2,8,46.7e9\n" + "unsaid" + row +
      "8,,8,\n");
  ASSERT_TRUE(cases[0].price && cases[1].price && cases[2].price) << cases[2].published.why_not;
  const auto forward = [&](std::size_t i) { return (*cases[i].price)[Phase::forward]; };
  EXPECT_GT(forward(1), forward(0)) << "one of eight experts: the work of a dense model, router and copies";
  EXPECT_LT(forward(1), 1.05 * forward(0));
  EXPECT_GT(forward(2), 1.3 * forward(0));
  EXPECT_NEAR((*cases[0].price)[Phase::tensor_comm], 0, 1e-9);
  EXPECT_GT((*cases[2].price)[Phase::tensor_comm], 1.5 * (*cases[1].price)[Phase::tensor_comm]);
  const auto weights = [&](std::size_t i) { return cases[i].price->memory.front()[Category::weights]; };
  EXPECT_EQ(weights(1), weights(0)) << "each of eight ranks has one expert";
  EXPECT_EQ(weights(2), weights(0));
  EXPECT_GT(cases[1].price->memory.front()[Category::optimizer],
            4 * cases[0].price->memory.front()[Category::optimizer])
      << "of which the replicas are fewer";
  EXPECT_EQ(cases[3].published.why_not, "a mixture of experts: top_k is missing");
}

// Qwen3, GPT-OSS and Mixtral; four bits. Releases of one program differ by up to 1.5 times on a mixture of experts.
TEST(PublishedModels, times_of_mixtures_of_experts_and_of_four_bits_are_predicted) {
  std::vector<double> of_experts;
  std::vector<double> of_others;
  for (const PricedCase& each : price_table(read_file(ESPALIER_EXPERT_ROWS, ExitCode::data))) {
    ASSERT_TRUE(each.predicted_seconds) << each.published.why_not;
    (each.published.problem.implementation.experts.count > 0 ? of_experts : of_others).push_back(each.time_error());
  }
  EXPECT_EQ(of_experts.size(), 35u);
  EXPECT_LT(summary_of(of_experts).median, 0.20);
  EXPECT_LT(summary_of(of_experts).worst, 0.50);
  EXPECT_EQ(of_others.size(), 14u);
  EXPECT_LT(summary_of(of_others).median, 0.08);
  EXPECT_LT(summary_of(of_others).worst, 0.15);
}

// Micro-batches of one sequence, which are estimated too fast (docs/planner.md); what fp8 gains on each device is not.
TEST(PublishedModels, times_of_eight_bits_are_predicted) {
  std::map<std::string, double> in_bf16;  // the error, by device
  const std::vector<PricedCase> cases = price_table(read_file(ESPALIER_FP8_ROWS, ExitCode::data));
  EXPECT_EQ(cases.size(), 10u);
  for (const PricedCase& each : cases) {
    ASSERT_TRUE(each.predicted_seconds) << each.published.why_not;
    EXPECT_LT(std::abs(each.time_error()), 0.45) << each.published.id;
    const std::string& device = each.published.problem.cluster.device.name;
    if (each.layout.precision == Precision::bf16)
      in_bf16[device] = each.time_error();
    ASSERT_TRUE(in_bf16.contains(device)) << each.published.id;
    EXPECT_NEAR((1 + each.time_error()) / (1 + in_bf16[device]), 1, 0.16) << each.published.id;
  }
}

TEST(PublishedModels, four_bits_are_of_blackwell) {
  const auto cases = price_table(
      "id,source,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision,recompute,"
      "iter_time_s\n"
      "a,x,48,6144,48,51200,2048,GB200,64,8,1,8,64,1,fp8,full,1\n"
      "b,x,48,6144,48,51200,2048,GB200,64,8,1,8,64,1,nvfp4,full,1\n"
      "c,x,48,6144,48,51200,2048,H100,64,8,1,8,64,1,nvfp4,full,1\n");
  EXPECT_LT(*cases[1].predicted_seconds, *cases[0].predicted_seconds);
  EXPECT_EQ(cases[2].published.why_not, "h100 has no nvfp4");
}

// No cut has them so; larger ones bound what they take.
TEST(PublishedModels, heads_that_do_not_divide_are_rounded_up) {
  const auto cases = price_table(
      "id,source,layers,hidden,heads,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,precision,recompute,"
      "iter_time_s\n"
      "a,x,40,14400,112,51200,2048,A100-80GB,64,8,8,1,64,1,bf16,full,10\n"
      "b,x,40,13824,108,51200,2048,A100-80GB,64,8,8,1,64,1,bf16,full,10\n");
  ASSERT_TRUE(cases[0].price && cases[1].price) << cases[0].published.why_not << cases[1].published.why_not;
  EXPECT_EQ(cases[0].published.problem.model.head_size(), 129);
  EXPECT_EQ(cases[1].published.problem.model.num_heads, 112);
  EXPECT_EQ(cases[1].published.problem.model.head_size(), 128);
}

// 10 heads of keys and values on 4 ranks are 12, 6 on 8 are 8; query heads are a multiple of both.
TEST(PublishedModels, widths_that_do_not_divide_are_rounded_up) {
  const auto cases = price_table(
      "id,source,layers,hidden,heads,kv_heads,ffn_hidden,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,micro_batch,"
      "precision,recompute,iter_time_s\n"
      "a,x,40,5120,40,10,13653,50257,2048,A100-80GB,8,4,2,1,64,1,bf16,full,10\n"
      "b,x,40,6144,48,6,16384,50257,2048,A100-80GB,8,8,1,1,64,1,bf16,full,10\n");
  ASSERT_TRUE(cases[0].price && cases[1].price) << cases[0].published.why_not << cases[1].published.why_not;
  const ModelConfig& on_four = cases[0].published.problem.model;
  EXPECT_EQ(on_four.num_kv_heads, 12);
  EXPECT_EQ(on_four.num_heads, 48);
  EXPECT_EQ(on_four.ffn_hidden_size, 13656);
  EXPECT_EQ(cases[1].published.problem.model.num_kv_heads, 8);
  EXPECT_EQ(cases[1].published.problem.model.num_heads, 48);
}

TEST(PublishedModels, parts_have_blocks_as_programs_give_them) {
  EXPECT_EQ(published_blocks(12, 4), (std::vector<Index>{3, 3, 3, 3}));
  EXPECT_EQ(published_blocks(22, 8),
            (std::vector<Index>{2, 3, 3, 3, 3, 3, 3, 2}));  // Qi et al. 2023: one fewer at both ends
  EXPECT_EQ(published_blocks(4, 6), (std::vector<Index>{0, 1, 1, 1, 1, 0}));
  for (const int parts : {1, 2, 3, 5, 7, 9}) {
    const std::vector<Index> blocks = published_blocks(37, parts);
    EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), Index{0}), 37);
    EXPECT_EQ(blocks.size(), static_cast<std::size_t>(parts));
  }
}

// 28 blocks of 113M and a head of 403M on two stages: half of all work lies in the first 16 blocks.
TEST(PublishedModels, stages_have_blocks_by_their_work) {
  const auto cases = price_table(
      "id,source,layers,hidden,heads,ffn_hidden,vocab,seq_len,gpu,gpus,tp,pp,vp,dp,global_batch_seqs,micro_batch,"
      "precision,"
      "recompute,iter_time_s,activation,program\n"
      "a,x,28,3072,32,8192,131072,4096,H100,8,1,2,1,4,256,2,bf16,none,10,swiglu,fused_attention\n"
      "b,x,28,3072,32,8192,131072,4096,H100,8,1,2,1,4,256,2,bf16,none,10,swiglu,fused_attention balances_stages\n");
  ASSERT_TRUE(cases[0].price && cases[1].price);
  EXPECT_EQ(balanced_blocks(cases[0].published.problem.model, 2), (std::vector<Index>{16, 12}));
  EXPECT_EQ(cases[0].layout.layers, (std::vector<Index>{14, 14}));
  EXPECT_EQ(cases[1].layout.layers, (std::vector<Index>{16, 12}));
  EXPECT_LT(*cases[1].predicted_seconds, *cases[0].predicted_seconds);
}

// Steps of Llama 3 8B by torchao: scales of rows cost more than those of tensors.
TEST(PublishedModels, what_fp8_is_scaled_by_has_a_price) {
  const auto seconds = [](const std::string& scaling) {
    const auto cases = price_table(
        "id,source,layers,hidden,heads,kv_heads,ffn_hidden,vocab,seq_len,gpu,gpus,tp,pp,dp,global_batch_seqs,"
        "micro_batch,precision,zero_stage,recompute,iter_time_s,fp8_scaling\n"
        "a,x,32,4096,32,8,14336,128256,8192,H100,8,1,1,8,8,1,fp8,3,none,1," +
        scaling + "\n");
    EXPECT_EQ(cases[0].published.why_not, scaling == "column" ? "fp8_scaling is unknown: column" : "");
    return cases[0].predicted_seconds.value_or(0);
  };
  EXPECT_EQ(seconds(""), seconds("delayed"));
  EXPECT_GT(seconds("tensor"), seconds("delayed"));
  EXPECT_EQ(seconds("block"), seconds("tensor"));
  EXPECT_GT(seconds("row"), 1.1 * seconds("tensor"));
  EXPECT_LT(seconds("row"), 1.3 * seconds("tensor"));
  EXPECT_EQ(seconds("column"), 0);
}

}  // namespace
}  // namespace espalier
