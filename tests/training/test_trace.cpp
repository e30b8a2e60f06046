// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What a run writes about its ranks: a trace that any viewer opens, and where the time of each step went.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "io/records/metrics.hpp"
#include "io/records/trace_file.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier::test {
namespace {

constexpr int traced_step = 2;

RunConfig traced_run(const SharedFolder& folder) {
  const int stages = world().size();
  return tiny_config(folder, world().size(),
                     {"model.num_layers=4", fmt::format("parallel.pipeline={}", stages), "batch.micro_batch_size=2",
                      "run.steps=4", "run.trace_steps=1", fmt::format("run.trace_first_step={}", traced_step)});
}

void run(const RunConfig& config) {
  const Layout layout = make_run_layout(config, world().size());
  const ProcessMesh mesh(world(), layout.mesh());
  train(config, {}, layout, mesh, {}, {});
  barrier(world());
}

TEST(Trace, IsJsonWithEveryOperationOfEveryRank) {
  const SharedFolder folder("trace");
  const RunConfig config = traced_run(folder);
  run(config);
  std::ifstream file(folder / "run" / "trace" / "trace.json");
  const nlohmann::json trace = nlohmann::json::parse(file);  // throws on anything but JSON
  const nlohmann::json& events = trace.is_array() ? trace : trace.at("traceEvents");

  std::set<int> named;
  std::map<int, std::map<std::string, double>> begins;  // by rank and name, microseconds
  for (const nlohmann::json& event : events) {
    if (event.at("ph") == "M" && event.at("name") == "process_name")
      named.insert(event.at("pid").get<int>() - 1);
    if (event.at("ph") != "X")
      continue;
    EXPECT_GE(event.at("dur").get<double>(), 0.0) << event;
    if (event.at("cat") == "forward" || event.at("cat") == "backward")
      begins[event.at("pid").get<int>() - 1].emplace(event.at("name"), event.at("ts").get<double>());
  }
  EXPECT_EQ(static_cast<int>(named.size()), world().size());
  const PipelineShape shape = make_run_layout(config, world().size()).pipeline_shape();
  for (int stage = 0; stage < world().size(); ++stage)
    for (int m = 0; m < shape.microbatches; ++m)
      for (const char* const kind : {"F", "B"}) {
        const std::string name = fmt::format("{}{}", kind, m);
        ASSERT_TRUE(begins[stage].contains(name)) << name << " of rank " << stage << " is not in the trace";
        if (stage == 0)
          continue;
        // Clocks are aligned: no effect before its cause.
        const double before = begins[stage - 1][name];
        if (kind == std::string("F")) {
          EXPECT_GT(begins[stage][name], before) << name << " of stage " << stage;
        } else {
          EXPECT_LT(begins[stage][name], before) << name << " of stage " << stage;
        }
      }
  barrier(world());
}

// An evaluation is no part of any step: what it receives is not drawn as a bubble of the step before.
TEST(Trace, HasEachOperationOfAStepOnceWhereRunsEvaluate) {
  const SharedFolder folder("evaluation");
  RunConfig config = traced_run(folder);
  config.run.trace_steps = 2;
  config.data.validation = config.data.train;
  config.run.eval_interval = 1;
  run(config);
  std::map<std::string, int> times;  // by step and name
  const Path path = folder / "run" / "trace" / fmt::format("rank-{:05}.json", world().rank());
  for (const TimelineEvent& event : read_trace(path))
    if (event.microbatch >= 0)
      ++times[fmt::format("{} ({}) of step {}, chunk {}", event.name, event.category, event.step, event.chunk)];
  EXPECT_FALSE(times.empty());
  for (const auto& [name, count] : times)
    EXPECT_EQ(count, 1) << name;
  barrier(world());
}

TEST(Trace, DrawsTheGathersAndSumsOfLayers) {
  const SharedFolder folder("gathers");
  const RunConfig config = tiny_config(folder, world().size(),
                                       {"model.num_layers=4", fmt::format("parallel.data={}", world().size()),
                                        "parallel.zero_stage=3", "batch.micro_batch_size=1", "run.steps=3",
                                        "run.trace_steps=1", fmt::format("run.trace_first_step={}", traced_step)});
  run(config);
  std::map<std::string, int> times;
  const Path path = folder / "run" / "trace" / fmt::format("rank-{:05}.json", world().rank());
  for (const TimelineEvent& event : read_trace(path))
    if (event.name.starts_with("gather layer") || event.name.starts_with("reduce layer"))
      ++times[event.name];
  const int passes = static_cast<int>(config.layout.global_batch) / world().size();
  // Two layers lie in the buffers: forward leaves the last two for backward, backward the first two for forward.
  for (int layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(times[fmt::format("gather layer {}", layer)], layer < 2 ? passes + 1 : passes) << "layer " << layer;
    EXPECT_EQ(times[fmt::format("reduce layer {}", layer)], passes) << "layer " << layer;
  }
  barrier(world());
}

TEST(Trace, EverySecondAndByteOfAStepHasAName) {
  const SharedFolder folder("ranks");
  run(traced_run(folder));
  const auto lines = read_metrics(folder / "run" / "ranks" / fmt::format("rank-{:05}.jsonl", world().rank()));
  ASSERT_EQ(lines.size(), 4U);
  for (const auto& line : lines) {
    double sum = 0;
    for (const auto& [phase, seconds] : line.at("seconds").items()) {
      if (phase != "checkpoint")  // of the save after the step before
        sum += seconds.template get<double>();
      if (phase != "other") {
        EXPECT_GE(seconds.template get<double>(), 0.0) << phase;
      }
    }
    const double step = line.at("step_seconds").get<double>();
    EXPECT_NEAR(sum, step, 1e-6 + 1e-3 * step) << line.dump();
    EXPECT_GT(line.at("seconds").at("forward").get<double>(), 0);
    EXPECT_GT(line.at("bytes_sent").at("pp").get<std::uint64_t>(), 0U);
    EXPECT_EQ(line.at("bytes_sent").at("tp").get<std::uint64_t>(), 0U);
  }
}

}  // namespace
}  // namespace espalier::test
