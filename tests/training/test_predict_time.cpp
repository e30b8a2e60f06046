// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planning/layout_memory.hpp"
#include "tests/training/shape_config.hpp"
#include "training/predict_time.hpp"
#include "training/predict_traffic.hpp"

namespace espalier::test {
namespace {

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
  const double bytes = static_cast<double>(predict_traffic<float>(config, make_run_layout(config, 2), 0)[1]);
  ASSERT_GT(bytes / 1e6, 0.02);  // longer than the last backward
  EXPECT_NEAR(emulated(2, slow).stages[0][Phase::data_comm], bytes / 1e6 - 0.02, tiny);
  EXPECT_EQ(emulated(2, {"parallel.data=2", "emulate.bandwidth=1e9"}).stages[0][Phase::data_comm], 0);
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
  const RunLayout layout = make_run_layout(config, 8);
  const PlanLayout planned = plan_layout(config, layout, Precision::fp32);
  EXPECT_EQ(planned.blocks_given, (std::vector<Index>{3, 1}));
  EXPECT_EQ(planned.data, 2);
  EXPECT_EQ(planned.num_microbatches(), 4);
  const auto time = predict_time(config, layout, assumed_cluster(8, Precision::fp32, 8e11), "a test");
  ASSERT_TRUE(time);
  for (const PhaseSeconds& stage : time->stages)
    EXPECT_NEAR(stage.total(), time->step_seconds, 1e-6 * time->step_seconds);
  EXPECT_GT(time->stages[0][Phase::forward], 1.5 * time->stages[1][Phase::forward]);
  EXPECT_GT(time->stages[1][Phase::bubble], time->stages[0][Phase::bubble]);
}

TEST(PredictTime, KeysOfALayoutGiveItBack) {
  for (const char* text : {"pipeline=2,data=2,tensor=2,sequence_parallel=1,recompute=full",
                           "pipeline=2,virtual_stages=2,data=2,zero=1,order=pipeline_first",
                           "pipeline=2,schedule=zero_bubble,recompute=selective", "tensor=4,data=2"}) {
    PlanLayout layout;
    layout.global_batch = 8;
    layout.precision = Precision::fp32;
    layout = parse_plan_layout(text, layout);
    const std::vector<Index> blocks = blocks_per_part(4, layout.pipeline * layout.virtual_stages);
    const RunConfig config = config_for(layout.num_devices(), parallel_keys(layout, blocks));
    const PlanLayout back = plan_layout(config, make_run_layout(config, layout.num_devices()), layout.precision);
    EXPECT_EQ(back.text(), layout.text());
    EXPECT_EQ(back.blocks_given, blocks);
    EXPECT_EQ(back.data_inside_pipeline, layout.data_inside_pipeline);
  }
}

TEST(PredictTime, KnowsWhatItDoesNotKnow) {
  const Cluster cluster = assumed_cluster(1, Precision::fp32, 1e11);
  const auto predicted = [&](const RunConfig& config, int ranks) {
    return predict_time(config, make_run_layout(config, ranks), cluster, "a test").has_value();
  };
  EXPECT_TRUE(predicted(config_for(1, {}), 1));
  EXPECT_FALSE(predicted(config_for(1, {"precision.compute=fp64"}), 1));
  EXPECT_FALSE(
      predicted(config_for(2, {"parallel.pipeline=2", "parallel.recompute_per_stage=[\"none\", \"full\"]"}), 2));
}

}  // namespace
}  // namespace espalier::test
