// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "diagnosis/recorded_run.hpp"

namespace espalier::test {

inline StepTimes times_of(Index step, double seconds) {
  StepTimes times;
  times.step = step;
  times.step_seconds = seconds;
  times.seconds[Phase::forward] = 0.3 * seconds;
  times.seconds[Phase::backward] = 0.6 * seconds;
  times.seconds[Phase::bubble] = 0.1 * seconds;
  return times;
}

// Steps of 0.1 s, but for the first, of 1 s; 64 tokens each; memory of 60 bytes.
inline RecordedRun run_of(Index num_steps, int num_ranks) {
  RecordedRun run;
  run.directory = "/runs/mine";
  run.record.state = RunState::completed;
  run.record.host = "node7";
  run.record.starts = 1;
  run.config.model.shape = {.vocab_size = 256,
                            .max_sequence_length = 8,
                            .num_layers = 2,
                            .hidden_size = 16,
                            .num_heads = 2,
                            .ffn_hidden_size = 64};
  run.config.layout = {.pipeline = num_ranks, .micro_batch = 2, .global_batch = 8, .precision = Precision::fp32};
  run.config.layout.layers.assign(static_cast<std::size_t>(num_ranks), 1);
  run.config.sequence_length = 8;
  for (Index step = 1; step <= num_steps; ++step) {
    StepRecord line;
    line.loss = 6 / std::sqrt(static_cast<double>(step));
    line.learning_rate = 1e-3;
    line.gradient_norm = 2;
    line.tokens = 64 * step;
    line.tokens_per_second = 640;
    line.gemm_fraction = 0.25;
    line.mfu = 0.125;
    line.times = times_of(step, step == 1 ? 1.0 : 0.1);
    line.memory_peak.bytes = {10, 20, 30};
    if (step % 10 == 0)
      line.validation_loss = line.loss + 0.1;
    run.steps.push_back(line);
  }
  for (int rank = 0; rank < num_ranks; ++rank) {
    run.ranks.emplace_back();
    for (const StepRecord& step : run.steps)
      run.ranks.back().push_back(step.times);
  }
  return run;
}

}  // namespace espalier::test
