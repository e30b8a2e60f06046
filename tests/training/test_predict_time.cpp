// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planning/layer_parameters.hpp"
#include "tests/training/shape_config.hpp"
#include "training/prediction/predict_time.hpp"
#include "training/prediction/predict_traffic.hpp"

namespace espalier::test {
namespace {

using testing::HasSubstr;

RunConfig config_for(int ranks, const std::vector<std::string>& more) {
  return shape_config({.vocab_size = 64,
                       .max_sequence_length = 16,
                       .num_layers = 4,
                       .hidden_size = 32,
                       .num_heads = 4,
                       .ffn_hidden_size = 128},
                      ranks, more);
}

TimePrediction emulated(int ranks, std::vector<std::string> more) {
  more.insert(more.end(), {"emulate.forward=0.01", "emulate.backward_input=0.01", "emulate.backward_weight=0.01",
                           "emulate.optimizer=0.005"});
  const RunConfig config = config_for(ranks, more);
  return predict_emulated_time(config, make_run_layout(config, ranks));
}

constexpr double tiny = 1e-9;

TEST(PredictTime, OfAPipelineIsTheClosedForm) {
  const TimePrediction time = emulated(4, {"parallel.pipeline=4"});
  ASSERT_EQ(time.stages.size(), 4U);
  for (const PhaseSeconds& stage : time.stages) {
    EXPECT_NEAR(stage[Phase::forward], 8 * 0.01, tiny);
    EXPECT_NEAR(stage[Phase::backward], 8 * 0.02, tiny);
    EXPECT_NEAR(stage[Phase::bubble], 3 * 0.03, tiny);  // (p - 1) (F + B)
    EXPECT_NEAR(stage.total(), time.step_seconds, tiny);
  }
  EXPECT_NEAR(time.step_seconds, (8 + 3) * 0.03 + 0.005, tiny);
}

TEST(PredictTime, APartThatTakesLongerMakesTheOthersWait) {
  const TimePrediction time = emulated(2, {"parallel.pipeline=2", "emulate.part_percent=[100, 200]"});
  EXPECT_NEAR(time.stages[0][Phase::forward], 0.08, tiny);
  EXPECT_NEAR(time.stages[1][Phase::forward], 0.16, tiny);
  EXPECT_NEAR(time.stages[1][Phase::bubble], 0.03, tiny);  // the first forward and the last backward of the other
  EXPECT_NEAR(time.stages[0][Phase::bubble], 0.03 + 8 * 0.03, tiny);
}

TEST(PredictTime, MessagesOfAPipelineAreItsLatency) {
  const TimePrediction time = emulated(
      2, {"parallel.pipeline=2", "parallel.schedule=sequential", "emulate.latency=0.004", "batch.global_batch_size=1"});
  EXPECT_NEAR(time.stages[0][Phase::pipeline_comm], 2 * 0.004, tiny);
}

TEST(PredictTime, MessagesOfAPipelineAreItsBytes) {
  const TimePrediction time =
      emulated(4, {"parallel.pipeline=2", "parallel.data=2", "parallel.schedule=sequential", "emulate.bandwidth=1e6",
                   "emulate.pipeline_message_scale=3", "emulate.data_message_scale=1e-6", "batch.global_batch_size=2"});
  EXPECT_NEAR(time.stages[0][Phase::pipeline_comm], 2 * 3 * 16 * 32 * 4 / 1e6, tiny);  // (T, C) fp32, there and back
}

TEST(PredictTime, AReductionIsHiddenAsFarAsBackwardReaches) {
  const std::vector<std::string> slow{"parallel.data=2", "emulate.bandwidth=1e6"};
  const RunConfig config = config_for(2, slow);
  const double bytes = static_cast<double>(
      predict_traffic(config, make_run_layout(config, 2), 0, types_of<Fp32>())[static_cast<std::size_t>(Axis::dp)]);
  ASSERT_GT(bytes / 1e6, 0.02);  // longer than the last backward
  EXPECT_NEAR(emulated(2, slow).stages[0][Phase::data_comm], bytes / 1e6 - 0.02, tiny);
  EXPECT_EQ(emulated(2, {"parallel.data=2", "emulate.bandwidth=1e9"}).stages[0][Phase::data_comm], 0);
}

// Of two chunks a stage the last group of two micro-batches goes backward through the second, then through the first:
// three backward passes lie behind the first gradients that are complete, and one beside the last.
TEST(PredictTime, AReductionOfTwoChunksIsHiddenByTheLastGroup) {
  const double backward = 0.02;
  const std::vector<std::string> keys{"parallel.pipeline=2",       "parallel.data=2",
                                      "parallel.virtual_stages=2", "parallel.schedule=interleaved",
                                      "batch.global_batch_size=8", "batch.micro_batch_size=1"};
  const RunConfig config = config_for(4, keys);
  const double bytes = static_cast<double>(
      predict_traffic(config, make_run_layout(config, 4), 0, types_of<Fp32>())[static_cast<std::size_t>(Axis::dp)]);
  for (const double passes : {1.0, 3.0, 6.0}) {
    const double reduction = passes * backward;
    std::vector<std::string> slow = keys;
    slow.push_back(fmt::format("emulate.bandwidth={}", bytes / reduction));
    slow.emplace_back("emulate.pipeline_message_scale=1e-9");
    EXPECT_NEAR(emulated(4, slow).stages[0][Phase::data_comm],
                std::max({0.0, reduction - 3 * backward, reduction / 2 - backward}), 1e-6)
        << passes;
  }
}

// ZeRO-1 gathers weights after the update, when no backward is left to overlap with them.
TEST(PredictTime, AGatherIsHiddenByNothing) {
  for (const char* const bandwidth : {"1e6", "1e9"}) {
    const std::vector<std::string> keys{"parallel.data=2", "parallel.zero_stage=1",
                                        fmt::format("emulate.bandwidth={}", bandwidth)};
    const RunConfig config = config_for(2, keys);
    const TrafficByGroup traffic = predict_reduction_traffic(config, make_run_layout(config, 2), 0, types_of<Fp32>());
    const ReductionTraffic& bytes = traffic.at(GroupKey{});
    const double rate = std::stod(bandwidth);
    const double reduction = static_cast<double>(bytes.reduce_bytes) / rate;
    const double gather = static_cast<double>(bytes.gather_bytes) / rate;
    ASSERT_GT(gather, 0);
    EXPECT_NEAR(emulated(2, keys).stages[0][Phase::data_comm], std::max(0.0, reduction - 0.02) + gather, tiny);
  }
}

// ZeRO-3 gathers a layer while the one before is computed. Where that takes longer, the rest is waited for.
TEST(PredictTime, LayersAreGatheredAndReducedBesideTheOthers) {
  const auto exposed = [](double bytes_a_second) {
    const std::vector<std::string> keys{"parallel.data=2", "parallel.zero_stage=3", "batch.global_batch_size=2",
                                        "batch.micro_batch_size=1",
                                        fmt::format("emulate.bandwidth={}", bytes_a_second)};
    return emulated(2, keys).stages[0][Phase::data_comm];
  };
  const RunConfig config = config_for(
      2, {"parallel.data=2", "parallel.zero_stage=3", "batch.global_batch_size=2", "batch.micro_batch_size=1"});
  const Layout layout = make_run_layout(config, 2);
  const ReductionTraffic all = predict_reduction_traffic(config, layout, 0, types_of<Fp32>()).at(GroupKey{});
  const ReductionTraffic rest = predict_reduction_traffic(config, layout, 0, types_of<Fp32>(), false).at(GroupKey{});
  // Four layers, two of which lie in the buffers when backward begins.
  const double gather = static_cast<double>(all.gather_bytes - rest.gather_bytes) / 6;
  const double reduce = static_cast<double>(all.reduce_bytes - rest.reduce_bytes) / 4;
  const double once = static_cast<double>(rest.gather_bytes);
  const double fast = 1e9;
  EXPECT_NEAR(exposed(fast), (gather + reduce + once) / fast, tiny) << "the first gather, and the last sum";
  const double slow = gather / 1.0;  // a second each, where a layer takes 2.5 ms forward
  EXPECT_GT(exposed(slow), 5.0);
  EXPECT_LT(exposed(slow), 6 + (4 * reduce + once + static_cast<double>(rest.reduce_bytes)) / slow);
}

TEST(PredictTime, TensorCollectivesAreCountedInTheirOperations) {
  const TimePrediction time = emulated(2, {"parallel.tensor=2", "emulate.latency=0.001"});
  // Two all_reduces, of two steps each, a layer and direction in 8 micro-batches; and those of table, head and loss.
  EXPECT_GE(time.stages[0][Phase::tensor_comm], 8 * 4 * 2 * 2 * 2 * 0.001 - tiny);
  EXPECT_LE(time.stages[0][Phase::tensor_comm], 8 * (4 * 2 * 2 * 2 + 10) * 0.001);
}

TEST(PredictTime, OnAClusterEveryStageAddsUp) {
  const RunConfig config = config_for(
      8, {"parallel.pipeline=2", "parallel.tensor=2", "parallel.layers_per_stage=[3, 1]", "parallel.zero_stage=1"});
  const Layout layout = make_run_layout(config, 8);
  EXPECT_EQ(layout.layers, (std::vector<Index>{3, 1}));
  EXPECT_EQ(layout.data, 2);
  EXPECT_EQ(layout.num_microbatches(), 4);
  const auto time = predict_time(config, layout, assumed_cluster(8, Precision::fp32, 8e11), "a test").time;
  ASSERT_TRUE(time);
  for (const PhaseSeconds& stage : time->stages)
    EXPECT_NEAR(stage.total(), time->step_seconds, 1e-6 * time->step_seconds);
  EXPECT_GT(time->stages[0][Phase::forward], 1.5 * time->stages[1][Phase::forward]);
  EXPECT_GT(time->stages[1][Phase::bubble], time->stages[0][Phase::bubble]);
}

TEST(PredictTime, KnowsWhatItDoesNotKnow) {
  const auto why_not = [&](int ranks, const std::vector<std::string>& more) {
    const RunConfig config = config_for(ranks, more);
    const TimeOutlook outlook = time_outlook(config, make_run_layout(config, ranks), 1e11);
    EXPECT_EQ(outlook.time.has_value(), outlook.why_not.empty()) << outlook.why_not;
    return outlook.why_not;
  };
  EXPECT_EQ(why_not(1, {"run.cluster=h100"}), "");
  if (exec_is_host)  // of which the GEMM rate says enough for a guess
    EXPECT_EQ(why_not(1, {}), "");
  else
    EXPECT_THAT(why_not(1, {}), HasSubstr("run.cluster is not set"));
  EXPECT_THAT(why_not(1, {"precision.compute=fp64"}), HasSubstr("fp64"));
  EXPECT_THAT(why_not(2, {"parallel.pipeline=2", "parallel.recompute_per_stage=[\"none\", \"full\"]"}),
              HasSubstr("recomputation that differs"));
  EXPECT_THAT(why_not(2, {"parallel.data=2", "emulate.latency=0.01"}), HasSubstr("emulates links"));
}

// A calibrated CPU is one with so many ranks at work, in the precisions that were measured.
TEST(PredictTime, OnAnotherMachineSaysWhatToMeasure) {
  const Cluster cluster = assumed_cluster(2, Precision::fp32, 1e11);
  const auto predicted = [&](int ranks, const std::vector<std::string>& more) {
    const RunConfig config = config_for(ranks, more);
    return predict_time(config, make_run_layout(config, ranks), cluster, "two.toml");
  };
  EXPECT_EQ(
      predicted(2, {"precision.compute=bf16"}).why_not,
      "two.toml describes another machine: a CPU of that GEMM rate does not support bf16 (it supports fp32); measure "
      "the machine as "
      "the run uses it: mpiexec -n 2 espalier bench machine --precision fp32,bf16 --output ranks_2.toml");
  EXPECT_THAT(predicted(4, {}).why_not, HasSubstr("it needs 4 devices, the machine has 2; measure"));
  EXPECT_THAT(predicted(4, {}).why_not, HasSubstr("mpiexec -n 4 espalier bench machine --output ranks_4.toml"));
  EXPECT_EQ(predicted(2, {}).time.value().source, "two.toml");
}

TEST(PredictTime, FewerRanksThanWereMeasuredAreNotKnownWell) {
  Cluster cluster = assumed_cluster(2, Precision::fp32, 1e11);
  cluster.device.error_share = 0.05;
  for (const int ranks : {1, 2}) {
    const RunConfig config = config_for(ranks, {});
    const TimePrediction time = predict_time(config, make_run_layout(config, ranks), cluster, "two.toml").time.value();
    EXPECT_NEAR(time.error_share, ranks == 1 ? 0.5 : 0.05, 1e-12);
    EXPECT_EQ(time.calibrated, ranks == 2);
    EXPECT_EQ(time.source, "two.toml");
    EXPECT_EQ(time.note.find("mpiexec -n 1 espalier bench machine") != std::string::npos, ranks == 1) << time.note;
  }
}

TEST(PredictTime, SaysThatItTakesDocumentsAsJoined) {
  const auto note_of = [](const std::vector<std::string>& more) {
    const RunConfig config = config_for(2, more);
    return predict_time(config, make_run_layout(config, 2), assumed_cluster(2, Precision::fp32, 1e11), "two.toml")
        .time.value()
        .note;
  };
  EXPECT_EQ(note_of({}), "");
  EXPECT_THAT(note_of({"data.documents=separate"}), HasSubstr("assumes joined documents"));
}

// Settings of [precision] that change messages: gradients in 16 bits are half as long, an fp32 residual twice.
TEST(PredictTime, KnowsInWhichTypesMessagesGo) {
  Cluster slow = assumed_cluster(2, Precision::bf16, 1e14);
  slow.node = {.bandwidth = 1e3, .latency = 0, .alone = 0};
  const auto seconds = [&](Phase phase, std::vector<std::string> more) {
    more.emplace_back("precision.compute=bf16");
    const RunConfig config = config_for(2, more);
    return predict_time(config, make_run_layout(config, 2), slow, "a test").time.value().stages[0][phase];
  };
  EXPECT_NEAR(seconds(Phase::data_comm, {"precision.gradient_reduction=compute"}) / seconds(Phase::data_comm, {}), 0.5,
              0.01);
  EXPECT_NEAR(seconds(Phase::pipeline_comm, {"parallel.pipeline=2", "precision.residual=state"}) /
                  seconds(Phase::pipeline_comm, {"parallel.pipeline=2"}),
              2, 0.1);
}

// What a fault is to be seen against.
TEST(PredictTime, IsOfTheRunWithoutInjectedFaults) {
  const auto predicted = [&](const std::vector<std::string>& faults) {
    std::vector<std::string> more{"parallel.pipeline=2", "run.cluster=h100"};
    more.insert(more.end(), faults.begin(), faults.end());
    const RunConfig config = config_for(2, more);
    return time_outlook(config, make_run_layout(config, 2), 1e11).time.value().step_seconds;
  };
  const double healthy = predicted({});
  EXPECT_EQ(predicted({"emulate.slow_rank=1", "emulate.slow_factor=1.5"}), healthy);
  EXPECT_EQ(predicted({"emulate.delayed_link=[0, 1]", "emulate.delay=0.1"}), healthy);
  EXPECT_EQ(predicted({"emulate.data=0.1"}), healthy);
}

}  // namespace
}  // namespace espalier::test
