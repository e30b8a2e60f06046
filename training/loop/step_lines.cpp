// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/step_lines.hpp"

#include <algorithm>

#include "models/cost.hpp"
#include "training/loop/run_files.hpp"

namespace espalier {

void StepLines::before_step(Index) {
  if (!since_first_step_)
    since_first_step_.emplace();
  ++steps_;
}

void StepLines::after_step(const LoopStep& step) {
  if (!run_.is_root())
    return;
  const TrainProgress progress = progress_of(step.report);
  run_.files.records().add_step(step.report, progress, step.validation_is_due);
  if (events_.step)
    events_.step(step.report, progress);
}

void StepLines::rolled_back_to(Index step) { run_.files.open_records(step); }

TrainProgress StepLines::progress_of(const StepReport& report) const {
  const RunConfig& config = run_.config;
  const Index left = config.total_steps() - report.step;
  const Index interval = config.checkpoint.interval;
  const Index to_save = interval > 0 ? std::min(interval - report.step % interval, left) : left;
  const double pace = since_first_step_->seconds() / static_cast<double>(steps_);
  const double attention_share = report.counts.attention_share;
  TrainProgress progress;
  progress.total_steps = config.total_steps();
  progress.tokens_per_second = static_cast<double>(config.tokens_per_step()) / report.step_seconds;
  progress.seconds_left = pace * static_cast<double>(left);
  progress.seconds_to_save = pace * static_cast<double>(to_save);
  progress.gemm_fraction = gemm_fraction(config.model.shape, config.sequence_length, progress.tokens_per_second,
                                         gemm_rate_, attention_share);
  if (peak_rate_)
    progress.mfu =
        mfu(config.model.shape, config.sequence_length, progress.tokens_per_second, *peak_rate_, attention_share);
  return progress;
}

}  // namespace espalier
