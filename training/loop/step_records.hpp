// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "io/records/event_file.hpp"
#include "io/records/metrics.hpp"
#include "io/records/metrics_csv.hpp"
#include "training/loop/metrics_line.hpp"
#include "training/loop/text_samples.hpp"

namespace espalier {

/// What rank 0 writes of the steps, for people and tools that watch: metrics.jsonl; metrics.csv, tensorboard/ and
/// samples.jsonl where the config wants them.
class StepRecords {
 public:
  /// Goes on after `last_step`: what is there of later steps is set aside. @throws Error (write), also by the others.
  StepRecords(const RunConfig& config, const Path& run, Index last_step);

  /// @param is_validated a validation of the step follows
  void add_step(const StepReport& report, const TrainProgress& progress, bool is_validated);
  void add_validation(Index step, double loss);
  void add_samples(Index step, const std::vector<TextSample>& samples);

 private:
  MetricsWriter metrics_;
  std::optional<MetricsCsv> csv_;
  std::optional<EventFile> events_;
  std::optional<MetricsWriter> samples_;
};

}  // namespace espalier
