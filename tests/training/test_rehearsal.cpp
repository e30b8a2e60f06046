// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "io/tokens/token_file.hpp"
#include "tests/io/support.hpp"
#include "tests/planning/problems.hpp"
#include "training/config/emulation.hpp"
#include "training/prediction/predict_time.hpp"
#include "training/prediction/predict_traffic.hpp"
#include "training/rehearsal/rehearsal.hpp"

namespace espalier::test {
namespace {

PlanProblem problem_on(const char* cluster) { return problem_of("gpt-22b", cluster); }

// What the emulation's own simulator makes of the config is what the planner asked for, in seconds of the cluster.
struct Both {
  TimePrediction emulated;
  LayoutPrice price;
  double time_scale = 1;
  PhaseSeconds of(std::size_t stage) const {  // the planner's seconds
    PhaseSeconds seconds = emulated.stages[stage];
    for (double& each : seconds.seconds)
      each /= time_scale;
    return seconds;
  }
};

Both rehearse(const char* layout, Index global_batch, int cores = 64) {
  const PlanProblem problem = problem_on("a100-80:2");
  const Rehearsal rehearsal = make_rehearsal(problem, layout_of(layout, global_batch), "tokens.bin", "run", 60, cores);
  return {.emulated = predict_emulated_time(rehearsal.config, make_run_layout(rehearsal.config, rehearsal.num_ranks())),
          .price = rehearsal.price,
          .time_scale = rehearsal.time_scale};
}

TEST(Rehearsal, WorkOfEveryStageIsAsPriced) {
  for (const char* layout : {"pipeline=4", "pipeline=4,virtual_stages=2", "pipeline=4,schedule=zero_bubble",
                             "pipeline=4,recompute=full", "tensor=2,data=2,pipeline=2"}) {
    SCOPED_TRACE(layout);
    const Both both = rehearse(layout, 16);
    for (std::size_t stage = 0; stage < both.price.stages.size(); ++stage) {
      const PhaseSeconds emulated = both.of(stage);
      const PhaseSeconds planned = both.price.stages[stage];
      EXPECT_NEAR(emulated[Phase::forward], planned[Phase::forward], 2e-3 * planned[Phase::forward]);
      EXPECT_NEAR(emulated[Phase::backward], planned[Phase::backward], 2e-3 * planned[Phase::backward]);
      EXPECT_NEAR(emulated[Phase::optimizer], planned[Phase::optimizer] + planned[Phase::other], 1e-9);
    }
    EXPECT_NEAR(both.emulated.step_seconds / both.time_scale, both.price.step_seconds, 0.03 * both.price.step_seconds);
  }
}

TEST(Rehearsal, MessagesOfEveryAxisTakeThePricedTime) {
  const Both pipeline = rehearse("pipeline=4,schedule=sequential", 4);
  EXPECT_NEAR(pipeline.of(0)[Phase::pipeline_comm], pipeline.price.stages[0][Phase::pipeline_comm],
              0.02 * pipeline.price.step_seconds);
  EXPECT_GT(pipeline.of(0)[Phase::pipeline_comm], 0);

  const Both tensor = rehearse("tensor=8", 4);
  const double priced = tensor.price.stages[0][Phase::tensor_comm];
  EXPECT_GT(priced, 0.01 * tensor.price.step_seconds);
  EXPECT_NEAR(tensor.of(0)[Phase::tensor_comm], priced, 0.03 * priced);

  const Both data = rehearse("data=16", 16);
  const ChunkSeconds& work = data.price.chunks[0][0].work;
  const double exposed = data.price.reduction_seconds - work.backward_input - work.backward_weight;
  EXPECT_GT(exposed, 0.01 * data.price.step_seconds);
  EXPECT_NEAR(data.of(0)[Phase::data_comm], exposed, 0.01 * data.price.step_seconds);  // nothing disturbs the work
}

// Of gradients and weights that rank 0 sends in a step.
double reduced_bytes(const Rehearsal& rehearsal) {
  const Layout run = make_run_layout(rehearsal.config, rehearsal.num_ranks());
  const auto bytes = predict_traffic(rehearsal.config, run, 0, types_of_run(rehearsal.config));
  return static_cast<double>(bytes[static_cast<std::size_t>(Axis::dp)]);
}

// Without replicas a reduction is that of the table which first and last stage share.
TEST(Rehearsal, ASharedTableIsReducedInThePricedTime) {
  const Rehearsal rehearsal =
      make_rehearsal(problem_on("a100-80:2"), layout_of("pipeline=4", 4), "tokens.bin", "run", 60, 64);
  const RunConfig::Emulate& emulate = rehearsal.config.emulate;
  const double seconds =
      reduced_bytes(rehearsal) * emulate.data_message_scale / emulate.bandwidth / rehearsal.time_scale;
  EXPECT_GT(rehearsal.price[Phase::data_comm], 0);
  EXPECT_NEAR(seconds, rehearsal.price[Phase::data_comm], 0.01 * seconds);
}

// A long reduction has links of its own: the messages of a replica do not queue behind it.
TEST(Rehearsal, AReplicaIsANode) {
  const Rehearsal rehearsal =
      make_rehearsal(problem_on("a100-80:4"), layout_of("tensor=2,data=4,pipeline=4", 64), "tokens.bin", "run", 60, 64);
  const Layout run = make_run_layout(rehearsal.config, rehearsal.num_ranks());
  const int node = static_cast<int>(rehearsal.config.emulate.ranks_per_node);
  for (int rank = 0; rank < rehearsal.num_ranks(); ++rank) {
    for (const Axis axis : {Axis::tp, Axis::pp})
      for (const int member : run.mesh().group(rank, axis))
        EXPECT_EQ(member / node, rank / node);
    for (const int member : run.mesh().group(rank, Axis::dp))
      EXPECT_EQ(member / node == rank / node, member == rank);
  }
}

// The vectors that tensor ranks sum besides fall to few ranks, and are a large part of a tiny model.
TEST(Rehearsal, NoRankReducesLongerThanPriced) {
  const Rehearsal rehearsal = make_rehearsal(
      problem_on("a100-80:2"), layout_of("tensor=8,data=2,sequence_parallel=1", 64), "tokens.bin", "run", 60, 64);
  const RunConfig& config = rehearsal.config;
  const Layout run = make_run_layout(config, rehearsal.num_ranks());
  ASSERT_GT(rehearsal.price.reduction_seconds, 0);
  for (int rank = 0; rank < rehearsal.num_ranks(); ++rank) {
    const TrafficByGroup traffic = predict_reduction_traffic(config, run, rank, types_of_run(config));
    double bytes = 0;
    for (const GroupKey& group : reduction_groups)
      bytes += message_scale(config.emulate, group) * static_cast<double>(traffic.at(group).reduce_bytes);
    const double seconds = bytes / config.emulate.node_bandwidth / rehearsal.time_scale;
    EXPECT_NEAR(seconds / rehearsal.price.reduction_seconds, 1, 0.05) << "rank " << rank;
  }
}

// Of 22 GB of gradients there would be 1300.
TEST(Rehearsal, GradientsAreReducedInSomeBuckets) {
  const Rehearsal rehearsal =
      make_rehearsal(problem_on("a100-80:4"), layout_of("data=8,pipeline=4", 512), "tokens.bin", "run", 60, 64);
  EXPECT_GT(rehearsal.price.memory[0][Category::gradients], std::size_t{20'000'000'000});
  const Layout run = make_run_layout(rehearsal.config, rehearsal.num_ranks());
  const double buckets =
      reduced_bytes(rehearsal) / static_cast<double>(reducer_options(rehearsal.config, run, 0).bucket_bytes);
  EXPECT_GT(buckets, 16);
  EXPECT_LT(buckets, 200);  // padded, sent and gathered
}

TEST(Rehearsal, FewCoresGetFewerBlocks) {
  const PlanProblem problem = problem_on("a100-80:8");
  const Layout layout = layout_of("data=16,pipeline=4", 256);
  const Rehearsal on_many = make_rehearsal(problem, layout, "tokens.bin", "run", 600, 256);
  const Rehearsal on_few = make_rehearsal(problem, layout, "tokens.bin", "run", 60, 2);
  EXPECT_EQ(on_many.num_blocks(), problem.model.num_layers);
  EXPECT_LT(on_few.num_blocks(), problem.model.num_layers);
  EXPECT_GE(on_few.num_blocks(), 4);
  EXPECT_NEAR(on_few.time_scale * on_few.price.step_seconds, 15, 1e-9);
  EXPECT_EQ(on_few.config.layout.layers.size(), 4u);
}

// Else they would take what this machine's own messages take. Where a part has one block, no rounding makes them
// longer.
TEST(Rehearsal, CollectivesOfTensorRanksAreNeverShort) {
  const PlanProblem problem = problem_on("a100-80:8");
  const Layout layout = layout_of("tensor=2,data=2,pipeline=2", 512);
  for (const double seconds : {20.0, 60.0, 600.0}) {
    const Rehearsal rehearsal = make_rehearsal(problem, layout, "tokens.bin", "run", seconds, 256);
    const Layout run = make_run_layout(rehearsal.config, rehearsal.num_ranks());
    const TimePrediction step = predict_emulated_time(rehearsal.config, run);
    const double passes = static_cast<double>(rehearsal.price.layout.num_microbatches()) *
                          static_cast<double>(rehearsal.num_blocks()) / layout.pipeline;
    EXPECT_GT(step.stages[0][Phase::tensor_comm] / passes, 0.02) << seconds;
    EXPECT_LT(rehearsal.num_blocks(), problem.model.num_layers) << seconds;
  }
}

// As many micro-batches as show the pipeline at work: those beyond do what others did.
TEST(Rehearsal, RunsSomeOfManyMicrobatches) {
  const PlanProblem problem = problem_on("a100-80:8");
  const auto rehearsed = [&](const char* text, Index global_batch) {
    const Layout layout = layout_of(text, global_batch);
    const Rehearsal rehearsal = make_rehearsal(problem, layout, "tokens.bin", "run", 60, 2);
    EXPECT_EQ(rehearsal.planned_microbatches, layout.num_microbatches());
    EXPECT_EQ(rehearsal.config.emulate.planned_microbatches, layout.num_microbatches());
    EXPECT_EQ(rehearsal.config.layout.global_batch,
              rehearsal.price.layout.num_microbatches() * rehearsal.price.layout.data);
    EXPECT_NEAR(rehearsal.time_scale * rehearsal.price.step_seconds, 15, 1e-9);
    return rehearsal.price.layout.num_microbatches();
  };
  EXPECT_EQ(rehearsed("data=4,pipeline=4", 512), 16);
  EXPECT_EQ(rehearsed("data=4,pipeline=4,virtual_stages=2", 512), 16);
  EXPECT_EQ(rehearsed("data=4,pipeline=4,micro_batch=2", 96), 12);
  EXPECT_EQ(rehearsed("data=2,tensor=2,pipeline=2", 512), 8);
  EXPECT_EQ(rehearsed("data=8", 512), 8);
  EXPECT_EQ(rehearsed("data=8", 8), 1);
}

TEST(Rehearsal, ReadsWhatTheRunMeasured) {
  const PlanProblem problem = problem_on("a100-80:1");
  const Rehearsal rehearsal = make_rehearsal(problem, layout_of("pipeline=2", 400), "tokens.bin", "run", 60, 64);
  const LayoutPrice& price = rehearsal.price;
  const double scale = rehearsal.time_scale;
  const nlohmann::json details = {{"time",
                                   {{"step_seconds", 1.1 * scale * price.step_seconds},
                                    {"steps", 3},
                                    {"stages", {{{"forward", 2 * scale}}, {{"forward", 2 * scale}}}}}}};
  const RehearsedStep step = rehearsed_step(rehearsal, details);
  EXPECT_NEAR(step.error_share(), 0.1, 1e-9);
  EXPECT_EQ(step.predicted_seconds, price.step_seconds);
  EXPECT_EQ(step.num_steps, 3);
  EXPECT_NEAR(step.rehearsed[Phase::forward], 2, 1e-9);
  EXPECT_GT(step.predicted[Phase::forward], 0);
  EXPECT_THROW(rehearsed_step(rehearsal, nlohmann::json::object()), Error);
}

TEST(Rehearsal, ItsTokensAreOfItsVocabulary) {
  const PlanProblem problem = problem_on("a100-80:1");
  const TemporaryDirectory directory;
  const Rehearsal rehearsal = make_rehearsal(problem, layout_of("data=8", 8), "tokens.bin", "run", 60, 64);
  write_rehearsal_tokens(rehearsal, directory / "tokens.bin");
  const TokenFile tokens(directory / "tokens.bin");
  tokens.check_vocabulary(rehearsal.config.model.shape.vocab_size);
  EXPECT_GE(tokens.num_tokens(), rehearsal.config.total_steps() * rehearsal.config.tokens_per_step());
}

}  // namespace
}  // namespace espalier::test
