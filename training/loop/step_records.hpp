// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "io/records/event_file.hpp"
#include "io/records/metrics.hpp"
#include "io/records/metrics_csv.hpp"
#include "training/loop/text_samples.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier {

/// Blanks that the line of a step gets that is to be validated: `,"validation_loss":` and a number fit.
constexpr std::size_t room_for_validation = 44;

/// A step in metrics.jsonl; docs/running.md explains each field.
nlohmann::ordered_json metrics_line(const StepReport& report, const TrainProgress& progress);

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
