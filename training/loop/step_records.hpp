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
#include "io/records/step_record.hpp"
#include "training/loop/text_samples.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier {

/// Blanks in the line of a step that is to be validated: `,"validation_loss":` and a number fit.
constexpr std::size_t validation_padding = 44;

/// The times of a step of this rank, without those of messages on their way.
StepTimes step_times(const StepReport& report);

/// A step in metrics.jsonl.
StepRecord step_record(const StepReport& report, const TrainProgress& progress);

/// The records of the steps on rank 0: metrics.jsonl, and metrics.csv, tensorboard/ and samples.jsonl if the config
/// wants them.
class StepRecords {
 public:
  /// Opens the records after `last_step`; lines of later steps are set aside. All functions throw Error (write).
  StepRecords(const RunConfig& config, const Path& run, Index last_step);

  /// @param validation_is_due a validation of the step follows
  void add_step(const StepReport& report, const TrainProgress& progress, bool validation_is_due);
  void add_validation(Index step, double loss);
  void add_samples(Index step, const std::vector<TextSample>& samples);

 private:
  MetricsWriter metrics_;
  std::optional<MetricsCsv> csv_;
  std::optional<EventFile> events_;
  std::optional<MetricsWriter> samples_;
};

}  // namespace espalier
