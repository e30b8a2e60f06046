// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "io/file.hpp"

// The names in a run directory (docs/running.md).

namespace espalier {

struct RunFile {
  static constexpr const char* record = "run.json";
  static constexpr const char* config = "config.toml";
  static constexpr const char* metrics = "metrics.jsonl";
  static constexpr const char* metrics_csv = "metrics.csv";
  static constexpr const char* samples = "samples.jsonl";
  static constexpr const char* prediction = "prediction.json";
  static constexpr const char* report = "report.html";
  static constexpr std::array all = {record, config, metrics, metrics_csv, samples, prediction, report};
};

struct RunFolder {
  static constexpr const char* state = "state";  ///< io/records/progress_file.hpp
  static constexpr const char* ranks = "ranks";  ///< rank_metrics_path()
  static constexpr const char* trace = "trace";  ///< io/records/trace_file.hpp
  static constexpr const char* incidents = "incidents";
  static constexpr const char* tensorboard = "tensorboard";
  /// All that hold nothing but what the run writes, and are no links.
  static constexpr std::array own = {state, ranks, trace, incidents, tensorboard};
  static constexpr const char* checkpoints = "checkpoints";  ///< may be a link
  static constexpr const char* tokenizer = "tokenizer";
};

/// The times of a rank by step, of a run with several ranks: RUN/ranks/rank-00003.jsonl.
Path rank_metrics_path(const Path& run, int rank);

}  // namespace espalier
