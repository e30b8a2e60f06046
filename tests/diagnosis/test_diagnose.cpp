// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Every cause is injected into a simulated run, and must be named first, with its size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/memory_text.hpp"
#include "diagnosis/diagnose.hpp"
#include "diagnosis/find_time.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/price_layout.hpp"
#include "tests/diagnosis/named_findings.hpp"
#include "tests/diagnosis/simulated_run.hpp"

using namespace espalier;
using espalier::test::expect_within_20_percent;
using espalier::test::find;
using espalier::test::first;
using espalier::test::SimulatedFaults;
using espalier::test::SimulatedRun;
using testing::HasSubstr;
using testing::Not;

namespace {

constexpr double layer_seconds = 3 * SimulatedRun::layer_forward;  // forward and backward of a micro-batch

TEST(Diagnose, HealthyRunHasNoFault) {
  const SimulatedRun simulated(2, 2, 4, 32, {2, 2, 2, 2});
  for (const Finding& finding : diagnose(simulated.run).findings) {
    EXPECT_FALSE(finding.is_fault) << finding.title;
    EXPECT_EQ(finding.cause, Cause::bubble) << finding.title;
  }
}

TEST(Diagnose, SlowLink) {
  for (const int stages : {2, 4}) {
    SCOPED_TRACE(stages);
    const std::vector<Index> layers(static_cast<std::size_t>(stages), 2);
    const SimulatedRun simulated(1, 1, stages, 8, layers, {.late_stage = 0, .delay = 0.1});
    const SimulatedRun healthy(1, 1, stages, 8, layers);
    const Diagnosis diagnosis = diagnose(simulated.run);
    const Finding& finding = first(diagnosis);
    ASSERT_EQ(finding.cause, Cause::slow_link) << finding.title;
    EXPECT_EQ(finding.ranks, (std::vector<int>{0, 1}));
    expect_within_20_percent(finding.size, 0.1);
    expect_within_20_percent(finding.seconds, simulated.step_seconds - healthy.step_seconds);
  }
}

// Sets how long the messages to a stage are on their way, and what waiting for them takes of a step.
void set_messages(RecordedRun& run, int stage, double activations, double gradients, double seconds) {
  for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
    if (run.config.layout.mesh().coordinates(static_cast<int>(rank))[Axis::pp] == stage)
      for (StepTimes& step : run.ranks[rank]) {
        step.activation_transit = activations;
        step.gradient_transit = gradients;
        step.seconds[Phase::pipeline_comm] = seconds;
        step.step_seconds += seconds;
      }
}

TEST(Diagnose, LinksBetweenNodesAreNotSlowLinks) {
  SimulatedRun simulated(1, 1, 8, 32, std::vector<Index>(8, 2));
  simulated.run.config.emulate.ranks_per_node = 4;
  set_messages(simulated.run, 3, 2e-4, 4e-3, 0);  // stages 3 and 4 are on different nodes
  set_messages(simulated.run, 4, 4e-3, 2e-4, 0);
  EXPECT_EQ(find(diagnose(simulated.run), Cause::slow_link), nullptr);
  set_messages(simulated.run, 2, 0.02, 2e-4, 0);
  const Diagnosis diagnosis = diagnose(simulated.run);
  const Finding* const slow = find(diagnosis, Cause::slow_link);
  ASSERT_NE(slow, nullptr) << "inside a node";
  EXPECT_EQ(slow->ranks, (std::vector<int>{1, 2}));
}

// Both ways through one cable: no link to compare with, but the time is told.
TEST(Diagnose, SlowCableOfTwoStages) {
  SimulatedRun simulated(1, 1, 2, 32, {2, 2});
  const double seconds = 0.4 * simulated.step_seconds;
  set_messages(simulated.run, 0, 0, 0.05, seconds);
  set_messages(simulated.run, 1, 0.05, 0, seconds);
  const Diagnosis diagnosis = diagnose(simulated.run);
  ASSERT_EQ(first(diagnosis).cause, Cause::stage_messages) << first(diagnosis).title;
  expect_within_20_percent(first(diagnosis).seconds, seconds);
  EXPECT_EQ(first(diagnosis).evidence, std::vector<std::string>{"predicted: 0 s"});
}

// Of 3 chunks 2 are half, rounded up: a third of the messages goes.
TEST(Diagnose, FewerChunksSaveTheMessagesThatGo) {
  for (const auto& [chunks, fewer, share] : {std::tuple{3, 2, 1.0 / 3}, {2, 1, 1.0 / 2}}) {
    SimulatedRun simulated(1, 1, 2, 32, {6, 6});
    simulated.run.config.layout.virtual_stages = chunks;
    simulated.run.config.layout.schedule = ScheduleKind::interleaved;
    const double seconds = 0.4 * simulated.step_seconds;
    set_messages(simulated.run, 0, 0, 0.05, seconds);
    set_messages(simulated.run, 1, 0.05, 0, seconds);
    const Diagnosis diagnosis = diagnose(simulated.run);
    const Finding* const messages = find(diagnosis, Cause::stage_messages);
    ASSERT_NE(messages, nullptr);
    const Change& change = messages->changes.front();
    EXPECT_EQ(change.setting, fmt::format("parallel.virtual_stages = {}", fewer));
    EXPECT_NEAR(change.gain_seconds, share * messages->seconds, 1e-9);
    EXPECT_TRUE(change.estimated_by.starts_with(fmt::format("{} of {} messages remain", fewer, chunks)));
  }
}

// On one host there is no host to take out, and no cable.
TEST(Diagnose, AdviceIsForTheHostsThatThereAre) {
  SimulatedRun rank(1, 2, 1, 4, {2}, {.slow_rank = 1, .slow_factor = 1.5});
  SimulatedRun link(1, 1, 4, 8, {2, 2, 2, 2}, {.late_stage = 0, .delay = 0.1});
  for (const bool one_host : {true, false}) {
    for (SimulatedRun* const simulated : {&rank, &link}) {
      simulated->run.facts.hosts = one_host ? std::vector<std::string>{"a"} : std::vector<std::string>{"a", "b"};
      simulated->run.facts.host_of_rank = one_host ? std::vector<std::size_t>(4) : std::vector<std::size_t>{0, 1, 0, 1};
      simulated->run.config.emulate.ranks_per_node = 4;
    }
    const std::string of_rank = first(diagnose(rank.run)).changes.front().setting;
    EXPECT_EQ(of_rank.starts_with(one_host ? "free the cores of rank 1" : "remove b from the job"), true) << of_rank;
    const std::string of_link = first(diagnose(link.run)).changes.front().setting;
    EXPECT_EQ(of_link.starts_with(one_host ? "these ranks are on one host" : "look at the cable"), true) << of_link;
  }
}

// Of a rehearsal that runs some of the plan's micro-batches, their number is no choice.
TEST(Diagnose, BubbleOfARehearsalIsThatOfItsPart) {
  SimulatedRun simulated(1, 2, 4, 4, {2, 2, 2, 2}, {.reduction = 0.3});
  simulated.run.config.emulate.planned_microbatches = 64;
  const Diagnosis diagnosis = diagnose(simulated.run);
  const Finding* const bubble = find(diagnosis, Cause::bubble);
  ASSERT_NE(bubble, nullptr);
  EXPECT_THAT(bubble->title, HasSubstr("the rehearsed part"));
  EXPECT_THAT(bubble->evidence.front(), HasSubstr("4 of the plan's 64 micro-batches"));
  for (const Finding& finding : diagnosis.findings)
    for (const Change& change : finding.changes)
      EXPECT_THAT(change.setting, Not(HasSubstr("batch.")));
  simulated.run.config.emulate.planned_microbatches = 4;
  const Diagnosis whole = diagnose(simulated.run);
  const std::vector<Change>& changes = find(whole, Cause::bubble)->changes;
  EXPECT_TRUE(std::any_of(changes.begin(), changes.end(),
                          [](const Change& change) { return change.setting.starts_with("batch.micro_batch_size"); }));
}

TEST(Diagnose, UnevenStages) {
  const SimulatedRun simulated(1, 1, 4, 8, {5, 3, 2, 2});
  const SimulatedRun even(1, 1, 4, 8, {3, 3, 3, 3});
  const Diagnosis diagnosis = diagnose(simulated.run);
  const Finding& finding = first(diagnosis);
  ASSERT_EQ(finding.cause, Cause::uneven_stages) << finding.title;
  expect_within_20_percent(finding.size - 1, 5.0 / 3 - 1);
  ASSERT_FALSE(finding.changes.empty());
  EXPECT_EQ(finding.changes.front().setting, "parallel.layers_per_stage = [3, 3, 3, 3]");
  expect_within_20_percent(finding.changes.front().gain_seconds, simulated.step_seconds - even.step_seconds);
}

// Stages of one layer each are not cut finer; and exchanges of tensor ranks are no work of the stage.
TEST(Diagnose, UnevenStagesThatNoCutMends) {
  SimulatedRun simulated(1, 1, 4, 8, {1, 1, 1, 1}, {.slow_rank = 3, .slow_factor = 1.0});
  for (StepTimes& step : simulated.run.ranks[3])
    for (const Phase phase : {Phase::forward, Phase::backward})
      step.seconds[phase] *= 1.07;  // too little for a slow rank
  const Diagnosis diagnosis = diagnose(simulated.run);
  const Finding* const uneven = find(diagnosis, Cause::uneven_stages);
  ASSERT_NE(uneven, nullptr);
  EXPECT_EQ(uneven->changes.front().setting.find("virtual_stages"), std::string::npos);

  // A slow rank elsewhere does not hide that a stage has too many layers.
  const SimulatedRun both(1, 1, 4, 8, {3, 2, 2, 2}, {.slow_rank = 2, .slow_factor = 3});
  EXPECT_NE(find(diagnose(both.run), Cause::uneven_stages), nullptr);

  SimulatedRun waiting(2, 1, 2, 8, {2, 2}, {.tensor = 0.1});
  for (const std::size_t rank : {0U, 1U})
    for (StepTimes& step : waiting.run.ranks[rank])
      step.seconds[Phase::tensor_comm] *= 3;
  EXPECT_EQ(find(diagnose(waiting.run), Cause::uneven_stages), nullptr);
}

TEST(Diagnose, TooFewMicrobatches) {
  for (const auto& [stages, microbatches] : {std::pair{2, 1}, {4, 2}, {4, 4}, {8, 8}}) {
    SCOPED_TRACE(fmt::format("{} stages, {} micro-batches", stages, microbatches));
    const SimulatedRun simulated(1, 1, stages, microbatches, std::vector<Index>(static_cast<std::size_t>(stages), 2));
    const Diagnosis diagnosis = diagnose(simulated.run);
    const Finding& finding = first(diagnosis);
    ASSERT_EQ(finding.cause, Cause::bubble) << finding.title;
    expect_within_20_percent(finding.size, (stages - 1.0) / (microbatches + stages - 1.0));
    expect_within_20_percent(finding.seconds, (stages - 1) * 2 * layer_seconds);
    EXPECT_TRUE(std::any_of(finding.changes.begin(), finding.changes.end(), [](const Change& change) {
      return change.setting.starts_with("batch.micro_batch_size = 1");
    }));
  }
}

// (p - 1) t / 2 of the bubble's (p - 1) t are left when micro-batches are half as long and twice as many.
TEST(Diagnose, GainOfSmallerMicrobatchesIsHalfTheBubble) {
  const SimulatedRun simulated(1, 1, 4, 4, {2, 2, 2, 2});
  const Diagnosis diagnosis = diagnose(simulated.run);
  const Finding* const bubble = find(diagnosis, Cause::bubble);
  ASSERT_NE(bubble, nullptr);
  const auto smaller = std::find_if(bubble->changes.begin(), bubble->changes.end(), [](const Change& change) {
    return change.setting == "batch.micro_batch_size = 1";
  });
  ASSERT_NE(smaller, bubble->changes.end());
  EXPECT_NEAR(smaller->gain_seconds, bubble->seconds / 2, 1e-9);
}

TEST(Diagnose, ExposedReduction) {
  const SimulatedRun simulated(1, 4, 2, 8, {2, 2}, {.reduction = 0.3});
  const Diagnosis diagnosis = diagnose(simulated.run);
  ASSERT_EQ(first(diagnosis).cause, Cause::gradient_reduction) << first(diagnosis).title;
  expect_within_20_percent(first(diagnosis).seconds, 0.3);
  RecordedRun emulated = simulated.run;  // tiny tensors stand for large ones
  emulated.config.emulate.data_message_scale = 1024;
  for (auto& steps : emulated.ranks)
    for (StepTimes& step : steps)
      step.bytes_sent[static_cast<std::size_t>(Axis::dp)] = 1 << 20;
  EXPECT_EQ(first(diagnose(emulated)).evidence.front(), "predicted: 0 s") << "bytes of another model";
  for (const auto& [zero_stage, share] : {std::pair{0, 1.0 / 2}, {1, 1.0 / 3}}) {  // ZeRO-1: weights come back
    RecordedRun run = simulated.run;
    run.config.layout.precision = Precision::bf16;
    run.config.layout.zero_stage = zero_stage;
    const Diagnosis in_16_bit = diagnose(run);
    const Finding& finding = first(in_16_bit);
    ASSERT_EQ(finding.changes.back().setting, "precision.gradient_reduction = \"compute\"");
    EXPECT_NEAR(finding.changes.back().gain_seconds, share * finding.seconds, 1e-9);
  }
}

TEST(Diagnose, TensorAcrossNodes) {
  SimulatedRun simulated(4, 1, 2, 8, {2, 2}, {.tensor = 0.4});
  RunConfig::Emulate& emulate = simulated.run.config.emulate;
  emulate.ranks_per_node = 2;
  emulate.latency = 1e-4;
  emulate.node_latency = 1e-3;
  const Diagnosis diagnosis = diagnose(simulated.run);
  const Finding& finding = first(diagnosis);
  ASSERT_EQ(finding.cause, Cause::tensor_across_nodes) << finding.title;
  expect_within_20_percent(finding.seconds, 0.4);
  ASSERT_FALSE(finding.changes.empty());
  EXPECT_NEAR(finding.changes.front().gain_seconds, 0.9 * 0.4, 1e-3);  // 400 latencies, a tenth as long
  // 100 MB at 1 GB/s and 300 latencies take 0.4 s; inside a node, at 10 GB/s, they take 0.01 s and 0.03 s.
  emulate.tensor_message_scale = 100;
  emulate.node_bandwidth = 1e9;
  emulate.bandwidth = 10e9;
  for (auto& steps : simulated.run.ranks)
    for (StepTimes& step : steps)
      step.bytes_sent[static_cast<std::size_t>(Axis::tp)] = 1'000'000;
  EXPECT_NEAR(first(diagnose(simulated.run)).changes.front().gain_seconds, 0.4 - 0.04, 1e-3);
  emulate.ranks_per_node = 4;
  const Diagnosis inside = diagnose(simulated.run);
  ASSERT_EQ(first(inside).cause, Cause::tensor_exchange);
  EXPECT_EQ(first(inside).changes.front().setting, "parallel.tensor = 2, with twice the replicas");
  EXPECT_NEAR(first(inside).changes.front().gain_seconds, 0.4 * 2 / 3, 1e-3);  // (3/4 - 1/2 x 1/2) / (3/4)
}

// A smaller tensor degree is proposed where it has room: with twice the replicas, ZeRO-1, or twice the stages.
TEST(Diagnose, FewerTensorRanksMustFit) {
  SimulatedRun simulated(4, 1, 2, 8, {2, 2}, {.tensor = 0.4});
  RunConfig& config = simulated.run.config;
  config.emulate.ranks_per_node = 8;
  config.layout.precision = Precision::bf16;
  config.model.shape = {.vocab_size = 256,  // else the token embedding is most of it
                        .max_sequence_length = 128,
                        .num_layers = 4,
                        .hidden_size = 2048,
                        .num_heads = 16,
                        .ffn_hidden_size = 8192};
  for (PhaseSeconds& stage : simulated.run.predicted_time->stages)
    stage[Phase::tensor_comm] = 0.25;
  const auto change = [&] {
    const Diagnosis diagnosis = diagnose(simulated.run);
    const Finding& finding = first(diagnosis);
    EXPECT_EQ(finding.cause, Cause::tensor_exchange);
    EXPECT_THAT(finding.evidence, testing::Contains("predicted: 0.25 s"));
    return finding.changes.front();
  };
  EXPECT_THAT(change().estimated_by,
              HasSubstr("whether it fits is not known: neither run.device_memory nor run.cluster"));
  config.run.cluster = "h100";
  EXPECT_EQ(change().setting, "parallel.tensor = 2, with twice the replicas");
  EXPECT_THAT(change().estimated_by, HasSubstr("it fits: stage "));
  Layout half = config.layout;
  half.tensor /= 2;
  half.data *= 2;
  const auto budget_for = [&](const Layout& layout) {
    return static_cast<Index>(peak_bytes(memory_of_stages({.model = config.model.shape,
                                                           .cluster = {},
                                                           .implementation = espalier_implementation(),
                                                           .sequence_length = config.sequence_length},
                                                          layout)));
  };
  config.run.device_memory = budget_for(half) - 1;
  EXPECT_EQ(change().setting, "parallel.tensor = 2, parallel.zero_stage = 1, with twice the replicas");
  half.zero_stage = 1;
  config.run.device_memory = budget_for(half) - 1;
  EXPECT_EQ(change().setting, "parallel.tensor = 2, parallel.pipeline = 4");
  EXPECT_THAT(change().estimated_by, HasSubstr("a longer bubble is not counted; it fits"));
  config.run.device_memory = 1 << 10;
  EXPECT_THAT(change().setting, HasSubstr("not parallel.tensor = 2, with twice the replicas: it does not fit: stage "));
  EXPECT_EQ(change().gain_seconds, 0);
}

// The room for another layout is that beside the attention that the run asked for.
TEST(Diagnose, OwnAttentionNeedsNoWorkspace) {
  RunConfig config;
  config.model.shape = {.vocab_size = 50257,
                        .max_sequence_length = 1024,
                        .num_layers = 12,
                        .hidden_size = 768,
                        .num_heads = 12,
                        .ffn_hidden_size = 3072};
  config.layout.data = 1;
  config.layout.global_batch = 4;
  config.layout.micro_batch = 4;
  config.sequence_length = 1024;
  config.layout.precision = Precision::bf16;
  config.run.cluster = "h100";
  const Layout& layout = config.layout;
  Implementation implementation = espalier_implementation();
  const auto need = [&] {
    return bytes_text(peak_bytes(memory_of_stages(
        {.model = config.model.shape, .cluster = {}, .implementation = implementation, .sequence_length = 1024},
        layout)));
  };
  EXPECT_THAT(fit_of(config, layout).text, HasSubstr("stage 0 needs " + need() + ","));
  config.run.attention = "own";
  implementation.cudnn_attention = false;
  EXPECT_THAT(fit_of(config, layout).text, HasSubstr("stage 0 needs " + need() + ","));
}

TEST(Diagnose, LayoutThatNodesCannotHoldIsNotProposedAsFitting) {
  RunConfig config;
  config.run.cluster = "h100:3x6";
  config.ranks_per_node = 6;
  config.layout = {.data = 9,
                   .pipeline = 2,
                   .micro_batch = 1,
                   .global_batch = 9,
                   .zero_stage = 1,
                   .shard_over = ShardOver::node,
                   .precision = Precision::bf16};
  const LayoutFit fit = fit_of(config, config.layout);
  EXPECT_EQ(fit.answer, LayoutFit::Answer::unknown);
  EXPECT_THAT(fit.text, HasSubstr("hold different numbers of the 9 replicas"));
}

TEST(Diagnose, StalledLoader) {
  const SimulatedRun simulated(1, 2, 2, 8, {2, 2}, {.stall = 0.25});
  const Diagnosis diagnosis = diagnose(simulated.run);
  ASSERT_EQ(first(diagnosis).cause, Cause::data_stall) << first(diagnosis).title;
  expect_within_20_percent(first(diagnosis).seconds, 0.25);
}

TEST(Diagnose, SavesThatStall) {
  const SimulatedRun simulated(1, 2, 1, 4, {4}, {.save = 1.0});
  const Diagnosis diagnosis = diagnose(simulated.run);
  ASSERT_EQ(first(diagnosis).cause, Cause::checkpoint_stall) << first(diagnosis).title;
  expect_within_20_percent(first(diagnosis).seconds, 0.5);
  EXPECT_EQ(first(diagnosis).changes.front().setting, "checkpoint.interval = 8");
}

TEST(Diagnose, SlowerThanPredicted) {
  SimulatedRun simulated(1, 2, 1, 4, {4});
  PhaseSeconds stage;
  stage[Phase::forward] = 4 * 4 * SimulatedRun::layer_forward / 2;
  stage[Phase::backward] = 2 * stage[Phase::forward];
  simulated.run.predicted_time = TimePrediction{.step_seconds = stage.total(), .stages = {stage}, .source = "a test"};
  const Diagnosis diagnosis = diagnose(simulated.run);
  ASSERT_EQ(first(diagnosis).cause, Cause::slow_compute) << first(diagnosis).title;
  expect_within_20_percent(first(diagnosis).size, 2);
  expect_within_20_percent(first(diagnosis).seconds, simulated.step_seconds / 2);
  EXPECT_THAT(diagnosis_text(simulated.run, diagnosis), HasSubstr("predicted: 0.24 s (+100 %), by a test"));
}

TEST(Diagnose, TextIsWithin120ColumnsAndNamesTheFirstFinding) {
  const SimulatedRun simulated(1, 2, 4, 4, {2, 2, 2, 2}, {.slow_rank = 3, .slow_factor = 1.5});
  const Diagnosis diagnosis = diagnose(simulated.run, &simulated.run);
  const std::string text = diagnosis_text(simulated.run, diagnosis);
  EXPECT_THAT(text, HasSubstr("rank 3 (unknown host) computes 50 % longer"));
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 120u) << text.substr(begin, end - begin);
  const auto json = nlohmann::json::parse(diagnosis_json(simulated.run, diagnosis));
  EXPECT_EQ(json["findings"][0]["cause"], "slow_rank");
  EXPECT_EQ(json["step"]["ranks"].size(), 8u);
}

}  // namespace
