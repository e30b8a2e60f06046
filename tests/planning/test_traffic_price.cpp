// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "models/cost.hpp"
#include "parallel/schedule/schedule_run.hpp"
#include "planning/collective_time.hpp"
#include "planning/layer_time.hpp"
#include "tests/planning/config_of_layout.hpp"
#include "tests/planning/problems.hpp"
#include "training/prediction/predict_traffic.hpp"

// What a plan is charged for messages, against what `train` counts that it sends.

using namespace espalier;
using espalier::test::config_of_layout;
using espalier::test::layout_of;
using espalier::test::problem_of;

namespace {

constexpr double bandwidth = 1e11;  // bytes a second, of every link

// A machine on which seconds of messages are their bytes, and nothing waits for the host.
PlanProblem without_latencies() {
  PlanProblem problem = problem_of("gpt2-774m", "a100-80:4", 1024);
  problem.cluster.node = {.bandwidth = bandwidth, .latency = 0, .alone = 0};
  problem.cluster.network = {.bandwidth = bandwidth, .latency = 0, .alone = bandwidth};
  problem.cluster.device.kernel_seconds = 0;
  return problem;
}

TEST(TrafficPrice, every_operation_has_the_collectives_of_train) {
  const PlanProblem problem = without_latencies();
  for (const bool sequence_parallel : {false, true})
    for (const Recompute recompute : all_recompute_modes()) {
      SCOPED_TRACE(std::string(to_string(recompute)) + (sequence_parallel ? ", sequence parallel" : ""));
      Layout layout = layout_of("tensor=4,micro_batch=2", 8);
      layout.sequence_parallel = sequence_parallel;
      layout.recompute = recompute;
      const double rows = 2 * 1024.0;
      const double one = collective_seconds(problem.cluster, Collective::all_gather, tensor_axis(layout),
                                            2 * rows * static_cast<double>(problem.model.hidden_size));
      const ModelWork work = model_work(problem.model, make_block_shape(problem.model, 4, sequence_parallel, 2, 1024),
                                        ScalarType::bf16, ScalarType::bf16);
      const auto counted = [&](const ChunkLayers& chunk, OperationKind kind) {
        return tensor_collectives(operation_work(work, chunk, kind)).passes();
      };
      const BlockTime block =
          block_time(problem.model, problem.cluster, layout, problem.implementation, problem.sequence_length);
      const ChunkLayers layers{.count = 1, .recompute = recompute};
      EXPECT_NEAR(block.forward.tensor / one, counted(layers, OperationKind::forward), 1e-9);
      EXPECT_NEAR((block.backward_input.tensor + block.recompute.tensor) / one,
                  counted(layers, OperationKind::backward_input), 1e-9);
      EXPECT_NEAR(block.backward_weight.tensor / one, counted(layers, OperationKind::backward_weight), 1e-9);
    }
}

// Of a step: each stage's collectives, but for the statistics of the loss, and each message.
TEST(TrafficPrice, a_step_has_the_bytes_of_train) {
  const PlanProblem problem = without_latencies();
  for (const char* const text :
       {"tensor=4", "tensor=4,sequence_parallel=1", "tensor=4,sequence_parallel=1,recompute=full", "pipeline=3",
        "tensor=2,pipeline=3,recompute=full", "tensor=2,pipeline=3,sequence_parallel=1,recompute=full",
        "tensor=2,pipeline=3,sequence_parallel=1,schedule=zero_bubble", "tensor=2,pipeline=3,virtual_stages=2"}) {
    SCOPED_TRACE(text);
    const Layout layout = layout_of(text, 12);
    const LayoutPrice price = price_layout(problem, layout);
    const RunConfig config = config_of_layout(problem.model, layout);
    const Layout run = make_run_layout(config, static_cast<int>(layout.num_devices()));
    const std::vector<PipelineSchedule> lists = make_schedules(run.pipeline_shape());
    for (int stage = 0; stage < layout.pipeline; ++stage) {
      const auto bytes = predict_traffic(config, run, run.mesh().first_rank_of_stage(stage), types_of<Bf16>());
      const double tensor = static_cast<double>(bytes[static_cast<std::size_t>(Axis::tp)]) / bandwidth;
      const PhaseSeconds& phases = price.stages[static_cast<std::size_t>(stage)];
      EXPECT_NEAR(phases[Phase::tensor_comm], tensor, 0.01 * tensor) << "stage " << stage;
      const auto sends = std::ranges::count_if(lists[static_cast<std::size_t>(stage)],
                                               [](const Operation& each) { return is_send(each.kind); });
      const double sent = static_cast<double>(bytes[static_cast<std::size_t>(Axis::pp)]) / bandwidth;
      EXPECT_NEAR(price.message_seconds * static_cast<double>(sends), sent, 1e-9 * sent) << "stage " << stage;
    }
  }
}

// The parts of a step for a rehearsal: collectives are taken from the operation that has them.
TEST(TrafficPrice, work_of_a_chunk_is_without_collectives) {
  const PlanProblem problem = without_latencies();
  const char* const choices = ",pipeline=3,schedule=zero_bubble,recompute=full";
  const auto work = [&](const std::string& tensor) {
    Layout layout = layout_of((tensor + choices).c_str(), 12);
    layout.layers = {12, 12, 12};
    return price_layout(problem, layout).chunks[1].front().work;
  };
  const ChunkSeconds copied = work("tensor=4,sequence_parallel=0");
  const ChunkSeconds split = work("tensor=4,sequence_parallel=1");
  // The same products. Of 12 blocks the gradients of two norms' weights read 2 arrays each, those of two biases one, of
  // a quarter of the rows.
  const double read = 12 * 6 * 2.0 * 1024 * static_cast<double>(problem.model.hidden_size);
  EXPECT_NEAR((copied.backward_weight - split.backward_weight) / traffic_seconds(problem.cluster.device, 0.75 * read),
              1, 1e-9);
  EXPECT_LT(split.backward_input, copied.backward_input);  // norms and sums of a quarter of the rows
  EXPECT_GT(split.backward_input, 0.5 * copied.backward_input);
}

// Gradients of ZeRO-1 are scattered beside the last backward; the updated weights are gathered when it is over.
TEST(TrafficPrice, a_gather_is_waited_for) {
  const PlanProblem problem = without_latencies();
  const Layout layout = layout_of("data=8,zero=1", 64);
  const LayoutPrice price = price_layout(problem, layout);
  const RunConfig config = config_of_layout(problem.model, layout);
  const auto traffic = predict_reduction_traffic(config, make_run_layout(config, 8), 0, types_of<Bf16>());
  const ReductionTraffic& bytes = traffic.at(GroupKey{});
  const double gather = static_cast<double>(bytes.gather_bytes) / bandwidth;
  const double reduce = static_cast<double>(bytes.reduce_bytes) / bandwidth;
  EXPECT_NEAR(price.gather_seconds, gather, 0.01 * gather);
  EXPECT_NEAR(price.reduction_seconds, reduce + gather, 0.01 * (reduce + gather));
  EXPECT_GE(price[Phase::data_comm], price.gather_seconds);
  EXPECT_LT(price[Phase::data_comm], price.gather_seconds + 0.5 * reduce);
}

// Hybrid sharding: weights stay within the node, and shards of gradients alone travel between nodes.
TEST(TrafficPrice, copies_of_shards_are_summed_between_nodes) {
  PlanProblem problem = without_latencies();
  problem.cluster.num_nodes = 4;
  problem.cluster.devices_per_node = 4;
  problem.cluster.network.bandwidth = bandwidth / 8;
  for (const int zero : {1, 3}) {
    const Layout layout =
        with_shards(layout_of(fmt::format("data=16,zero={},shard_over=node", zero).c_str(), 16), problem.cluster);
    EXPECT_EQ(layout.shard_replicas, 4);
    RunConfig config = config_of_layout(problem.model, layout);
    config.ranks_per_node = 4;
    const auto traffic = predict_reduction_traffic(config, make_run_layout(config, 16), 0, types_of<Bf16>());
    const ReductionTraffic& bytes = traffic.at(GroupKey{});
    const double within = static_cast<double>(bytes.reduce_bytes + bytes.gather_bytes) / bandwidth;
    const double between = static_cast<double>(bytes.second_reduce_bytes) / problem.cluster.network.bandwidth;
    const LayoutPrice price = price_layout(problem, layout);
    EXPECT_NEAR(price.reduction_seconds, within + between, 0.02 * (within + between)) << "ZeRO-" << zero;
  }
  // Weights that are gathered again and again have most of it.
  const Layout all = layout_of("data=16,zero=3", 64);
  const Layout node = layout_of("data=16,zero=3,shard_over=node", 64);
  EXPECT_GT(price_layout(problem, all).reduction_seconds, 1.5 * price_layout(problem, node).reduction_seconds);
}

}  // namespace
