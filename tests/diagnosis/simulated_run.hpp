// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "diagnosis/recorded_run.hpp"
#include "parallel/schedule/pipeline_simulator.hpp"

namespace espalier::test {

/// What a run is to be made of. Seconds are those of one operation of a layer's stage.
struct SimulatedFaults {
  int slow_rank = -1;
  double slow_factor = 1;
  int late_stage = -1;  ///< what it sends forward arrives later
  double delay = 0;
  double stall = 0;       ///< seconds of reading tokens
  double save = 0;        ///< seconds of a save, every second step
  double reduction = 0;   ///< exposed seconds of the gradients' sum
  double tensor = 0;      ///< seconds of tensor collectives a step
  double transit = 2e-4;  ///< seconds of a message
};

/// A run directory as its reader would give it, from lists that the schedule's simulator ran: not a number in it comes
/// from what is tested.
class SimulatedRun {
 public:
  SimulatedRun(int tensor, int data, int pipeline, Index microbatches, std::vector<Index> layers,
               const SimulatedFaults& faults = {})
      : faults_(faults) {
    RunConfig& config = run.config;
    config.layout.tensor = tensor;
    config.layout.data = data;
    config.layout.pipeline = pipeline;
    config.model.shape = {};
    config.model.shape.num_layers = 0;
    for (const Index count : layers)
      config.model.shape.num_layers += count;
    config.layout.layers = layers;
    config.layout.micro_batch = 2;
    config.layout.global_batch = 2 * microbatches * data;
    config.sequence_length = 128;
    config.emulate.forward = layer_forward;
    config.emulate.backward_input = 2 * layer_forward;
    config.optimizer.learning_rate = 1e-3;
    config.optimizer.warmup_steps = 100;
    config.optimizer.clip_grad_norm = 1;
    config.checkpoint.interval = faults.save > 0 ? 2 : 0;
    config.run.steps = 1000;
    run.directory = "simulated";
    run.record.state = RunState::completed;
    simulate_step(layers);
    predict_work(layers);
  }

  RecordedRun run;
  double step_seconds = 0;
  static constexpr double layer_forward = 0.01;
  static constexpr Index num_steps = 20;

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  double operation(int rank, Index layers, OperationKind kind) const {
    const double slow = rank == faults_.slow_rank ? faults_.slow_factor : 1;
    const double whole = slow * layer_forward * static_cast<double>(layers);
    return kind == OperationKind::forward ? whole : kind == OperationKind::backward ? 2 * whole : 0;
  }

  // As much work as was planned, in a step of the length that it came to.
  void predict_work(const std::vector<Index>& layers) {
    TimePrediction& prediction = run.predicted_time.emplace();
    prediction.step_seconds = step_seconds;
    prediction.source = "a test";
    for (const Index count : layers) {
      PhaseSeconds& seconds = prediction.stages.emplace_back();
      const auto operations = static_cast<double>(count * run.config.layout.num_microbatches());
      seconds[Phase::forward] = layer_forward * operations;
      seconds[Phase::backward] = 2 * layer_forward * operations;
    }
  }

  // The slowest tensor rank sets the pace of its stage; the others wait in collectives.
  void simulate_step(const std::vector<Index>& layers) {
    const RunConfig& config = run.config;
    const int stages = config.layout.pipeline;
    const auto lists = make_schedules({.stages = stages,
                                       .microbatches = static_cast<int>(config.layout.num_microbatches()),
                                       .ties_embeddings = false});
    std::vector<double> ends(at(config.layout.data));
    std::vector<StepTimes> times(at(config.layout.num_devices()));
    for (int replica = 0; replica < config.layout.data; ++replica) {
      const auto rank_of = [&](int stage, int tensor) {
        return config.layout.mesh().rank_at(PerAxis::coordinates(tensor, replica, stage));
      };
      const auto of_stage = [&](int stage, OperationKind kind) {
        double longest = 0;
        for (int tensor = 0; tensor < config.layout.tensor; ++tensor)
          longest = std::max(longest, operation(rank_of(stage, tensor), layers[at(stage)], kind));
        return longest;
      };
      const Simulation simulation = simulate(
          lists, {.compute = [&](int stage, const Operation& op) { return of_stage(stage, op.kind); },
                  .message =
                      [&](int stage, const Operation& op) {
                        const bool late = stage == faults_.late_stage && op.kind == OperationKind::send_activations;
                        return faults_.transit + (late ? faults_.delay : 0);
                      }});
      const double end = simulation.events.back().end;  // of the last operation: the optimizer, on all stages
      ends[at(replica)] = end;
      for (int stage = 0; stage < stages; ++stage)
        for (int tensor = 0; tensor < config.layout.tensor; ++tensor) {
          const int rank = rank_of(stage, tensor);
          const double m = static_cast<double>(config.layout.num_microbatches());
          PhaseSeconds& seconds = times[at(rank)].seconds;
          seconds[Phase::forward] = m * operation(rank, layers[at(stage)], OperationKind::forward);
          seconds[Phase::backward] = m * operation(rank, layers[at(stage)], OperationKind::backward);
          seconds[Phase::tensor_comm] =
              simulation.busy[at(stage)] - seconds[Phase::forward] - seconds[Phase::backward] + faults_.tensor;
          seconds[Phase::bubble] = end - simulation.busy[at(stage)];
          const bool late = stage == faults_.late_stage + 1 && faults_.late_stage >= 0;
          times[at(rank)].activation_transit = stage > 0 ? faults_.transit + (late ? faults_.delay : 0) : 0;
          times[at(rank)].gradient_transit = stage + 1 < stages ? faults_.transit : 0;
        }
    }
    const double pipelines = *std::max_element(ends.begin(), ends.end());
    step_seconds = pipelines + faults_.reduction + faults_.tensor + faults_.stall;
    for (int rank = 0; rank < config.layout.num_devices(); ++rank) {
      const double waits = pipelines - ends[at(config.layout.mesh().coordinates(rank)[Axis::dp])];
      times[at(rank)].seconds[Phase::data_comm] = faults_.reduction + waits;
      times[at(rank)].seconds[Phase::data] = faults_.stall;
      times[at(rank)].step_seconds = step_seconds;
    }
    repeat(times);
  }

  void repeat(const std::vector<StepTimes>& times) {
    run.ranks.resize(times.size());
    for (Index step = 1; step <= num_steps; ++step) {
      for (std::size_t rank = 0; rank < times.size(); ++rank) {
        StepTimes& each = run.ranks[rank].emplace_back(times[rank]);
        each.step = step;
        each.seconds[Phase::checkpoint] = step % 2 == 1 ? faults_.save : 0;
      }
      StepRecord line;
      line.loss = 5 - 0.05 * static_cast<double>(step);
      line.gradient_norm = 1 + 0.01 * static_cast<double>(step % 3);
      line.learning_rate = 1e-3;
      line.times = run.ranks.front().back();
      run.steps.push_back(line);
    }
  }

  SimulatedFaults faults_;
};

}  // namespace espalier::test
