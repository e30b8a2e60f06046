// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "planning/layer_time.hpp"
#include "planning/layout_limits.hpp"
#include "planning/plan_text.hpp"
#include "planning/search.hpp"
#include "tests/planning/problems.hpp"

using namespace espalier;
using espalier::test::layout_of;
using espalier::test::problem_of;

namespace {

TEST(PriceLayout, phases_add_up_to_the_step) {
  const PlanProblem problem = problem_of("gpt3-175b", "a100-80:16");
  for (const char* text :
       {"tensor=8,pipeline=16,data=1", "tensor=8,pipeline=8,data=2,virtual_stages=3,zero=1",
        "tensor=4,pipeline=16,data=2,recompute=full,schedule=zero_bubble", "data=128,zero=3,recompute=full"}) {
    const LayoutPrice price = price_layout(problem, layout_of(text, 256));
    EXPECT_NEAR(price.seconds.total() / price.step_seconds, 1, 1e-12) << text;
    for (const double seconds : price.seconds.seconds)
      EXPECT_GE(seconds, 0) << text;
    const bool recomputes = price.layout.recompute == Recompute::full;  // all of forward but the head, then
    EXPECT_NEAR(price.recompute_seconds, recomputes ? price[Phase::forward] : 0,
                (recomputes ? 0.4 : 0) * price[Phase::forward])
        << text;
    EXPECT_NEAR(price.tokens_per_second, 256 * 2048 / price.step_seconds, 1e-6) << text;
    EXPECT_GT(price.flops_shares.shown(), 0.05) << text;
    EXPECT_LT(price.flops_shares.shown(), 0.75) << text;
    EXPECT_EQ(price.memory.size(), static_cast<std::size_t>(price.layout.pipeline));
  }
}

// The peak of the maker makes an MFU, whose attention is counted without causality; a measured rate a GEMM fraction.
TEST(PriceLayout, a_share_says_what_it_is_of) {
  PlanProblem problem = problem_of("gpt3-175b", "a100-80:16");
  const Layout layout = layout_of("tensor=8,pipeline=16,data=1", 256);
  const LayoutPrice of_peak = price_layout(problem, layout);
  EXPECT_FALSE(of_peak.flops_shares.gemm_fraction);
  EXPECT_EQ(of_peak.flops_shares.text(), fmt::format("MFU {:.1f} %", 100 * of_peak.flops_shares.shown()));
  EXPECT_NEAR(of_peak.flops_shares.mfu.value(),
              of_peak.tokens_per_second * model_flops_per_token(problem.model, 2048) / (312e12 * 128), 1e-6);
  MatrixRate& rate = problem.cluster.device.rate(Precision::bf16);
  rate.is_measured = true;
  const LayoutPrice of_rate = price_layout(problem, layout);
  EXPECT_FALSE(of_rate.flops_shares.mfu) << "the peak is unknown";
  EXPECT_NEAR(of_rate.flops_shares.gemm_fraction.value(),
              of_rate.tokens_per_second * training_flops_per_token(problem.model, 2048) / (312e12 * 128), 1e-6);
  rate.maker_peak = 400e12;
  const LayoutPrice of_both = price_layout(problem, layout);
  EXPECT_EQ(of_both.flops_shares.gemm_fraction, of_rate.flops_shares.gemm_fraction);
  EXPECT_NEAR(of_both.flops_shares.mfu.value(), of_peak.flops_shares.mfu.value() * 312 / 400, 1e-6);
  const auto head = [&](const LayoutPrice& price) {
    const std::string table = ranking_text(problem, {price}, 1);
    return table.substr(0, table.find('\n'));
  };
  EXPECT_THAT(head(of_peak), testing::AllOf(testing::HasSubstr(" MFU "), testing::Not(testing::HasSubstr("GEMM"))));
  EXPECT_THAT(head(of_rate), testing::AllOf(testing::HasSubstr(" GEMM "), testing::Not(testing::HasSubstr("MFU"))));
  EXPECT_EQ(head(of_both), head(of_peak)) << "MFU compares devices";
  EXPECT_EQ(of_both.flops_shares.shown(), of_both.flops_shares.mfu);
  EXPECT_EQ(of_both.flops_shares.text(),
            fmt::format("GEMM fraction {:.1f} %, MFU {:.1f} %", 100 * of_both.flops_shares.gemm_fraction.value(),
                        100 * of_both.flops_shares.mfu.value()));
}

TEST(PriceLayout, chunks_and_messages_are_what_the_step_is_made_of) {
  PlanProblem problem = problem_of("gpt-22b", "a100-80:4");
  problem.cluster.device.kernel_seconds = 0;  // nothing waits for the host: times add up
  const LayoutPrice price = price_layout(problem, layout_of("tensor=2,data=4,pipeline=4,recompute=full", 64));
  ASSERT_EQ(price.chunks.size(), 4u);
  for (std::size_t stage = 0; stage < price.chunks.size(); ++stage) {
    ASSERT_EQ(price.chunks[stage].size(), 1u);
    const ChunkPrice& chunk = price.chunks[stage].front();
    const PhaseSeconds& phases = price.stages[stage];
    const double work = phases[Phase::forward] + phases[Phase::backward];
    EXPECT_NEAR(16 * chunk.work.total(), work, 1e-9 * work);
    EXPECT_NEAR(16 * chunk.work.forward, phases[Phase::forward], 1e-9 * work);
    EXPECT_NEAR(16 * chunk.tensor, phases[Phase::tensor_comm], 1e-9 * work);
  }
  EXPECT_GT(price.message_seconds, 0);
  EXPECT_GE(price.reduction_seconds, price.overlapped_data_seconds);
}

// Where the cores that compute also move messages, nothing of a reduction overlaps.
TEST(PriceLayout, cores_that_move_messages_hide_none) {
  PlanProblem problem = problem_of("gpt2-1558m", "a100-80:1", 1024);
  const Layout layout = layout_of("data=8", 64);
  const LayoutPrice beside = price_layout(problem, layout);
  EXPECT_GT(beside.overlapped_data_seconds, 0.5 * beside.reduction_seconds);
  problem.cluster.device.moves_messages = true;
  const LayoutPrice after = price_layout(problem, layout);
  EXPECT_NEAR(after[Phase::data_comm], after.reduction_seconds, 1e-9);
  EXPECT_NEAR(after.overlapped_data_seconds, 0, 1e-9);
}

TEST(PriceLayout, estimate_and_simulation_agree) {
  const PlanProblem problem = problem_of("gpt3-175b", "a100-80:16");
  for (const char* text : {"tensor=8,pipeline=16,data=1", "tensor=8,pipeline=8,data=2,virtual_stages=3",
                           "tensor=8,pipeline=4,data=4", "tensor=8,pipeline=8,data=2,schedule=zero_bubble"}) {
    const Layout layout = layout_of(text, 256);
    const double ratio =
        price_layout(problem, layout, Effort::estimate).step_seconds / price_layout(problem, layout).step_seconds;
    EXPECT_NEAR(ratio, 1, 0.08) << text;
  }
}

TEST(PriceLayout, says_why_a_layout_is_impossible) {
  const PlanProblem problem = problem_of("gpt2-124m", "a100-80:4", 1024);
  const auto why = [&](const char* text) { return why_impossible(problem, layout_of(text, 32)); };
  EXPECT_EQ(why("tensor=4,data=8"), "");
  EXPECT_EQ(why("tensor=8,data=4"), "tensor 8 cannot share num_heads 12 (nearest: tensor 6 or 12, num_heads 8 or 16)");
  EXPECT_NE(why("pipeline=16,data=2").find("more than num_layers 12 (nearest: pipeline 12)"), std::string::npos);
  EXPECT_NE(why("data=32,micro_batch=2")
                .find("global_batch_size 32 is not divisible by micro_batch_size 2 x data 32 (nearest: 64, or "
                      "micro_batch_size 1)"),
            std::string::npos);
  EXPECT_NE(why("data=10,micro_batch=2")
                .find("global_batch_size 32 is not divisible by micro_batch_size 2 x data 10 (nearest: 20 or 40)"),
            std::string::npos);
  EXPECT_NE(why("data=4,precision=fp8").find("a100-80 does not support fp8"), std::string::npos);
  EXPECT_EQ(why("data=64"), "it needs 64 devices, the machine has 32");
  PlanProblem few_tokens = problem;
  few_tokens.model.vocab_size = 3;
  EXPECT_EQ(why_impossible(few_tokens, layout_of("tensor=4,data=8", 32)),
            "tensor 4 cannot share vocab_size 3 (nearest: tensor 3, vocab_size 4)");
  EXPECT_NE(why("context=3").find("does not divide sequence_length 1024 (nearest: 2 or 4)"), std::string::npos);
  for (const char* schedule : {"1f1b", "zero_bubble", "zero_bubble_2p"})
    EXPECT_EQ(why(("virtual_stages=2,pipeline=2,schedule=" + std::string(schedule)).c_str()),
              fmt::format("schedule {} has 1 virtual stage per stage, not virtual_stages 2 (schedules with 2: "
                          "sequential, gpipe, interleaved)",
                          schedule));
  EXPECT_EQ(
      why("pipeline=2,schedule=zero_bubble_v"),
      "schedule zero_bubble_v has 2 virtual stages per stage, not virtual_stages 1 (schedules with 1: sequential, "
      "gpipe, 1f1b, zero_bubble)");
  EXPECT_EQ(why("pipeline=2,schedule=interleaved"),
            "schedule interleaved has at least 2 virtual stages per stage, not virtual_stages 1 (schedules with 1: "
            "sequential, gpipe, 1f1b, zero_bubble)");
  EXPECT_EQ(why("data=8,schedule=interleaved"), "");  // one stage has no schedule
  EXPECT_EQ(
      why("pipeline=2,schedule=zero_bubble_v,virtual_stages=3"),
      "schedule zero_bubble_v has 2 virtual stages per stage, not virtual_stages 3 (schedules with 3: sequential, "
      "gpipe, interleaved)");
  EXPECT_EQ(why("data=8,schedule=zero_bubble_v"), "");  // one stage has no schedule
  PlanProblem llama = problem_of("llama-3.2-3b", "h100:4", 1024);
  EXPECT_EQ(why_impossible(llama, layout_of("tensor=8,data=4", 32)), "");
  const std::string heads = why_impossible(llama, layout_of("tensor=3", 32));
  EXPECT_NE(heads.find("tensor 3 cannot share num_kv_heads 8 (nearest: tensor 2 or 4, num_kv_heads 6 or 9)"),
            std::string::npos)
      << heads;
  EXPECT_EQ(why_impossible(llama, layout_of("data=4,precision=fp8", 32)), "");
  llama.cluster.device.rate(Precision::bf16) = {};
  EXPECT_EQ(why_impossible(llama, layout_of("data=4,precision=fp8", 32)),
            "h100 does not support bf16, which fp8 layouts need for attention and head");
  // What is possible can be simulated.
  for (const char* schedule : {"gpipe", "sequential", "interleaved", "zero_bubble_v"}) {
    const std::string text = "virtual_stages=2,pipeline=2,schedule=" + std::string(schedule);
    EXPECT_EQ(why(text.c_str()), "");
    EXPECT_GT(price_layout(problem, layout_of(text.c_str(), 32)).step_seconds, 0) << text;
  }
}

// ZB-V: the model goes down the stages and up again, so that the first has its first and last part [Qi et al. 2023].
TEST(PriceLayout, zero_bubble_v_goes_down_the_stages_and_up_again) {
  const PlanProblem problem = problem_of("gpt2-124m", "a100-80", 1024);
  Layout layout = layout_of("pipeline=3,virtual_stages=2,schedule=zero_bubble_v", 32);
  layout.layers = {3, 2, 1, 1, 1, 4};
  EXPECT_EQ(layout.part_of(0, 1), 5);
  EXPECT_EQ(layout.part_of(2, 1), 3);
  for (int stage = 0; stage < layout.pipeline; ++stage)
    for (int chunk = 0; chunk < 2; ++chunk)
      EXPECT_EQ(layout.stage_of_part(layout.part_of(stage, chunk)), stage);
  const LayoutPrice price = price_layout(problem, layout);
  const auto forward = [&](std::size_t stage, std::size_t chunk) { return price.chunks[stage][chunk].work.forward; };
  const double block = forward(2, 0);
  EXPECT_NEAR(forward(1, 0) / block, 2, 1e-6);
  EXPECT_NEAR(forward(1, 1) / block, 1, 1e-6);
  EXPECT_NEAR(forward(2, 1) / block, 1, 1e-6);
  EXPECT_GT(forward(0, 1), 4.5 * block);  // with the head
  const auto weights = [&](std::size_t stage) { return static_cast<double>(price.memory[stage][Category::weights]); };
  EXPECT_NEAR(weights(1) / weights(2), 1.5, 1e-6);  // 3 blocks and 2
  EXPECT_GT(weights(0), 3.5 * weights(2));          // 7, and the table
  EXPECT_EQ(price.tied_seconds, 0);                 // which no other stage has
  // A search that is told the schedule gives it its chunks.
  LayoutSpace space{.num_devices = 8, .global_batch = 32};
  space.schedule = ScheduleKind::zero_bubble_v;
  for (const LayoutPrice& each : search_layouts(problem, space).ranking)
    EXPECT_EQ(each.layout.virtual_stages, each.layout.pipeline > 1 ? 2 : 1) << each.layout.text();
}

// What is too much, where, and by how much.
TEST(PriceLayout, says_why_a_layout_does_not_fit) {
  PlanProblem problem = problem_of("gpt3-175b", "a100-40:2");
  problem.cluster.reserved_bytes = 0;
  const LayoutPrice price = price_layout(problem, layout_of("data=16", 16));
  const std::string reason = why_too_large(problem, price);
  EXPECT_NE(reason.find("does not fit: stage 0 needs"), std::string::npos) << reason;
  EXPECT_NE(reason.find("a device has 40.00 GiB"), std::string::npos) << reason;
  EXPECT_NE(reason.find("most of it optimizer (1.9"), std::string::npos) << reason;  // 12 bytes x 174.6e9
  const auto bytes = static_cast<Index>(price.memory_bytes);
  problem.cluster.device.memory_bytes = bytes + bytes / 1000;  // the prediction fits, the end of its range does not
  EXPECT_THAT(why_too_large(problem, price), testing::StartsWith("may not fit: stage 0 needs"));
  EXPECT_THAT(why_too_large(problem, price), testing::HasSubstr(" (at most "));
  problem.cluster.device.memory_bytes = bytes + bytes / 50;
  EXPECT_EQ(why_too_large(problem, price), "");
}

TEST(PriceLayout, overlap_shortens_the_reduction) {
  PlanProblem problem = problem_of("gpt-22b", "a100-80:8");
  const Layout layout = layout_of("tensor=8,data=8,zero=1,recompute=full", 64);
  const LayoutPrice overlapped = price_layout(problem, layout);
  problem.implementation.overlaps_reduction = false;
  const LayoutPrice exposed = price_layout(problem, layout);
  EXPECT_GT(exposed.step_seconds, overlapped.step_seconds);
  EXPECT_GT(overlapped.overlapped_data_seconds, 0);
  EXPECT_NEAR(exposed[Phase::data_comm], overlapped[Phase::data_comm] + overlapped.overlapped_data_seconds, 1e-9);
}

// Interleaved, the last p micro-batches go through one chunk after another, and the gradients of the chunks that they
// have left are reduced beside the others.
TEST(PriceLayout, more_chunks_hide_more_of_the_reduction) {
  PlanProblem problem = problem_of("gpt-22b", "a100-80:8");
  problem.implementation.overlaps_gather = true;
  const auto overlapped_share = [&](const char* text) {
    const LayoutPrice price = price_layout(problem, layout_of(text, 64));
    return price.overlapped_data_seconds / price.reduction_seconds;
  };
  const double one = overlapped_share("tensor=2,data=8,pipeline=4,recompute=full,zero=1");
  const double two = overlapped_share("tensor=2,data=8,pipeline=4,virtual_stages=2,recompute=full,zero=1");
  const double six = overlapped_share("tensor=2,data=8,pipeline=4,virtual_stages=6,recompute=full,zero=1");
  EXPECT_GT(two, one);
  EXPECT_GT(six, two);
}

// The gradients that are complete last have the last pass of their own chunk alone to overlap with, however many
// others.
TEST(PriceLayout, the_last_chunk_overlaps_its_own_gradients) {
  for (const double gigabytes : {0.5, 1.0, 2.0, 4.0, 8.0}) {
    PlanProblem problem = problem_of("gpt-22b", "a100-80:8");
    problem.cluster.network.bandwidth = problem.cluster.network.alone = 1e9 * gigabytes;
    const LayoutPrice price =
        price_layout(problem, layout_of("data=16,pipeline=4,virtual_stages=2,recompute=full", 64));
    double backward = 0;  // of a micro-batch through both chunks of the stage that has most
    for (const std::vector<ChunkPrice>& stage : price.chunks) {
      double seconds = 0;
      for (const ChunkPrice& chunk : stage)
        seconds += chunk.work.backward_input + chunk.work.backward_weight;
      backward = std::max(backward, seconds);
    }
    const double reduction = price.reduction_seconds - price.tied_seconds;
    const double waited = price[Phase::data_comm] - price.tied_seconds;
    EXPECT_GE(waited, overlapped(backward / 2, reduction / 2) - backward / 2 - 1e-9) << gigabytes;
    EXPECT_LT(waited, reduction) << gigabytes;
  }
}

// 40 bytes an element by one kernel, 110 by a kernel an operator.
TEST(PriceLayout, an_optimizer_of_many_kernels_moves_more) {
  PlanProblem problem = problem_of("gpt-22b", "a100-80:1");
  const auto optimizer = [&](bool fused) {
    problem.implementation.fused_optimizer = fused;
    return price_layout(problem, layout_of("tensor=8,recompute=full", 8))[Phase::optimizer];
  };
  EXPECT_NEAR(optimizer(false) / optimizer(true), 110.0 / 40, 1e-9);
}

// A rank that keeps its share of the gradients alone cannot add up micro-batches: ZeRO-2 scatters those of each.
TEST(PriceLayout, zero_2_reduces_every_microbatch) {
  const PlanProblem problem = problem_of("gpt3-13b", "a100-80:2");
  const auto price = [&](const char* text, Index batch) { return price_layout(problem, layout_of(text, batch)); };
  const auto reduction = [&](const char* text, Index batch) { return price(text, batch).reduction_seconds; };
  const double once = reduction("data=16,zero=2", 16);
  EXPECT_NEAR(once / reduction("data=16,zero=1", 16), 1, 0.05);
  EXPECT_NEAR(reduction("data=16,zero=1", 1024) / reduction("data=16,zero=1", 16), 1, 1e-9);
  EXPECT_GT(reduction("data=16,zero=2", 1024), 64 * 0.6 * once);  // 4 of the 6 bytes an element
  EXPECT_LT(reduction("data=16,zero=2", 1024), 64 * once);
  EXPECT_GT(price("data=16,zero=2", 1024).step_seconds, price("data=16,zero=1", 1024).step_seconds);
}

// 40 blocks of 6 weights and 6 biases, each in 16 slices that the host starts twice.
TEST(PriceLayout, slices_of_tensors_are_started_one_by_one) {
  PlanProblem problem = problem_of("gpt3-13b", "a100-80:2");
  const auto messages = [&](const char* text) { return price_layout(problem, layout_of(text, 16))[Phase::data_comm]; };
  const double together = messages("data=16,zero=1");
  const double unsharded = messages("data=16,zero=0");
  problem.implementation.slices_tensors = true;
  EXPECT_NEAR(messages("data=16,zero=1") - together, 2 * 40 * 12 * 16 * 8e-6, 1e-9);
  EXPECT_EQ(messages("data=16,zero=0"), unsharded);
}

// Every micro-batch ZeRO-3 gathers weights twice and scatters gradients: 2 + 2 + 4 bytes an element, 4 + 4 + 4 in fp32.
TEST(PriceLayout, zero_3_gathers_weights_as_wide_as_they_are) {
  PlanProblem problem = problem_of("gpt3-13b", "a100-80:2");
  problem.cluster.node.latency = problem.cluster.network.latency = 0;
  const auto reduction = [&](const char* text) { return price_layout(problem, layout_of(text, 64)).reduction_seconds; };
  EXPECT_NEAR(reduction("data=16,zero=3,precision=fp32") / reduction("data=16,zero=3"), 12.0 / 8, 1e-3)
      << "but for the tables, which are gathered once a step";
}

// Narayanan et al. 2021, section 5.4: tensor parallelism belongs inside a node, pipelines between them; and
// Fig. 13: of tensor x pipeline = 64, tensor 8 is the best.
TEST(PriceLayout, tensor_parallelism_belongs_inside_a_node) {
  const PlanProblem problem = problem_of("gpt3-175b", "a100-80:8");
  const auto seconds = [&](const char* text) { return price_layout(problem, layout_of(text, 128)).step_seconds; };
  const double best = seconds("tensor=8,pipeline=8,recompute=full");
  EXPECT_LT(best, seconds("tensor=16,pipeline=4,recompute=full"));
  EXPECT_LT(best, seconds("tensor=32,pipeline=2,recompute=full"));
}

TEST(PriceLayout, more_bandwidth_is_never_slower) {
  for (const char* text :
       {"tensor=8,pipeline=16", "data=128,zero=3,recompute=full", "tensor=16,data=8,recompute=full"}) {
    PlanProblem problem = problem_of("gpt3-175b", "a100-80:16");
    const double before = price_layout(problem, layout_of(text, 128)).step_seconds;
    problem.cluster.network.bandwidth *= 4;
    problem.cluster.network.alone *= 4;
    EXPECT_LT(price_layout(problem, layout_of(text, 128)).step_seconds, before) << text;
  }
}

}  // namespace
