// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/memory_ledger.hpp"
#include "core/phases.hpp"

namespace espalier {

/// Seconds of one step, before it is run.
struct TimePrediction {
  double step_seconds = 0;
  std::vector<PhaseSeconds> stages = {};  ///< by phase, of a rank of each stage; each adds up to step_seconds
  double error_share = 0;                 ///< half the width of the error bars; 0: not known
  bool calibrated = false;                ///< on CPUs, by their measured speed with as many ranks at work
  std::string source = {};                ///< what it was made from
  std::string note = {};                  ///< what it does not know that its source could tell, and what to do
};

/// A prediction, or in words why there is none and what to do about it.
struct TimeOutlook {
  std::optional<TimePrediction> time = {};
  std::string why_not = {};
};

/// prediction.json: what `train` expected before it measured.
struct PredictionRecord {
  TimeOutlook outlook = {};
  std::vector<MemoryByCategory> memory = {};  ///< of a rank of each stage
};

nlohmann::ordered_json to_json(const PredictionRecord& prediction);

/// Nothing where another version wrote it. @throws std::runtime_error that names the field which is missing, of another
/// type or out of its range
std::optional<PredictionRecord> prediction_from_json(const nlohmann::json& json);

}  // namespace espalier
