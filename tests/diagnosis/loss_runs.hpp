// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <vector>

#include "tests/diagnosis/simulated_run.hpp"

// Runs whose losses are what a test is about.
namespace espalier::test {

inline RecordedRun calm_run(Index num_steps) {
  RecordedRun run = SimulatedRun(1, 1, 1, 4, {2}).run;
  const StepRecord line = run.steps.back();
  run.steps.clear();
  for (Index i = 1; i <= num_steps; ++i) {
    StepRecord step = line;
    step.times.step = i;
    step.loss = 4 - 0.01 * static_cast<double>(i) + 0.03 * std::sin(7.0 * static_cast<double>(i));
    step.gradient_norm = 1 + 0.2 * std::cos(3.0 * static_cast<double>(i));
    run.steps.push_back(step);
  }
  return run;
}

inline RecordedRun run_with_losses(const std::vector<double>& losses) {
  RecordedRun run = calm_run(static_cast<Index>(losses.size()));
  for (std::size_t i = 0; i < losses.size(); ++i)
    run.steps[i].loss = losses[i];
  return run;
}

// What a vocabulary of 256 and its frequencies are worth: 5.545 and 3.4 nats.
inline RecordedRun run_of_bytes(const std::vector<double>& losses) {
  RecordedRun run = run_with_losses(losses);
  run.config.model.shape.vocab_size = 256;
  run.config.model.shape.hidden_size = 64;
  run.config.model.shape.ffn_hidden_size = 256;
  run.config.optimizer.warmup_steps = 20;
  run.facts.unigram_loss = 3.4;
  return run;
}

}  // namespace espalier::test
