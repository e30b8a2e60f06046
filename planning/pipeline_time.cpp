// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/pipeline_time.hpp"

#include <algorithm>
#include <cmath>

#include "core/scalars.hpp"
#include "parallel/schedule/pipeline_simulator.hpp"

namespace espalier {
namespace {

constexpr Index most_simulated_operations = 400'000;  // operations: a tenth of a second

double seconds_of(const PipelineCosts& costs, int stage, const Operation& operation) {
  const ChunkSeconds& chunk = costs.chunks[static_cast<std::size_t>(stage)][static_cast<std::size_t>(operation.chunk)];
  switch (operation.kind) {
    case OperationKind::forward: return chunk.forward;
    case OperationKind::backward: return chunk.backward_input + chunk.backward_weight;
    case OperationKind::backward_input: return chunk.backward_input;
    case OperationKind::backward_weight: return chunk.backward_weight;
    default: return 0;
  }
}

double simulated_window(const PipelineCosts& costs, Index microbatches) {
  const PipelineShape shape{.kind = costs.schedule,
                            .stages = costs.num_stages(),
                            .chunks = costs.num_chunks(),
                            .microbatches = static_cast<int>(microbatches),
                            .gathers_weights = false,
                            .ties_embeddings = false};
  const ScheduleCosts seconds{
      .compute = [&](int stage, const Operation& operation) { return seconds_of(costs, stage, operation); },
      .message = [&](int stage,
                     const Operation& send) { return costs.message + (costs.delay ? costs.delay(stage, send) : 0); }};
  return simulate(make_schedules(shape), seconds).window;
}

// Work of each stage, and what follows from a window.
PipelineTime with_window(const PipelineCosts& costs, double window) {
  PipelineTime time{.window = window};
  double all = 0;
  for (int stage = 0; stage < costs.num_stages(); ++stage) {
    double work = 0;
    for (const ChunkSeconds& chunk : costs.chunks[static_cast<std::size_t>(stage)])
      work += chunk.total();
    work *= to_double(costs.microbatches);
    all += work;
    if (work > time.busiest) {
      time.busiest = work;
      time.busiest_stage = stage;
    }
  }
  time.window = std::max(window, time.busiest);
  if (time.window > 0)
    time.idle_share = 1 - all / (costs.num_stages() * time.window);
  return time;
}

ChunkSeconds mean_stage(const PipelineCosts& costs) {
  ChunkSeconds mean;
  for (const auto& stage : costs.chunks)
    for (const ChunkSeconds& chunk : stage) {
      mean.forward += chunk.forward / costs.num_stages();
      mean.backward_input += chunk.backward_input / costs.num_stages();
      mean.backward_weight += chunk.backward_weight / costs.num_stages();
    }
  return mean;
}

}  // namespace

double bubble_seconds(ScheduleKind schedule, int stages, int chunks, Index microbatches, const ChunkSeconds& stage) {
  const double p = stages - 1;
  switch (schedule) {
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::gpipe: return p * stage.total();
    case ScheduleKind::sequential: return p * to_double(microbatches) * stage.total();
    case ScheduleKind::interleaved: return p * stage.total() / chunks;
    case ScheduleKind::zero_bubble: return p * std::max(0.0, stage.total() - 2 * stage.backward_weight);
    case ScheduleKind::zero_bubble_2p: return p * std::max(0.0, stage.total() - 3 * stage.backward_weight);
    case ScheduleKind::zero_bubble_v: return 0;
  }
  return 0;
}

PipelineTime estimate_pipeline_time(const PipelineCosts& costs) {
  const PipelineTime busy = with_window(costs, 0);
  const double bubble =
      bubble_seconds(costs.schedule, costs.num_stages(), costs.num_chunks(), costs.microbatches, mean_stage(costs));
  const double hops = 2.0 * (costs.num_stages() - 1);
  const double steady = costs.num_stages() > 1 ? to_double(costs.microbatches) * costs.num_chunks() : 0;
  return with_window(costs, busy.busiest + bubble + (hops + steady) * costs.message);
}

PipelineTime pipeline_time(const PipelineCosts& costs, Index most_operations) {
  const int stages = costs.num_stages();
  if (stages == 1)
    return with_window(costs, 0);
  if (!has_list(costs.schedule))
    return estimate_pipeline_time(costs);
  const Index of_one_microbatch = Index{2} * stages * costs.num_chunks();
  const Index shorter = Index{2} * stages;
  const Index longer = Index{3} * stages;
  const Index rest = costs.microbatches % stages;  // the shape of the last group of an interleaved list
  if (std::min(costs.microbatches, longer + rest) * of_one_microbatch > most_simulated_operations)
    return estimate_pipeline_time(costs);
  if (costs.microbatches <= longer + rest || costs.microbatches * of_one_microbatch <= most_operations)
    return with_window(costs, simulated_window(costs, costs.microbatches));
  const double first = simulated_window(costs, shorter + rest);
  const double second = simulated_window(costs, longer + rest);
  const double each = (second - first) / to_double(longer - shorter);
  return with_window(costs, second + each * to_double(costs.microbatches - longer - rest));
}

}  // namespace espalier
