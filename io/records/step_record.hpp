// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/axis.hpp"
#include "core/memory_ledger.hpp"
#include "core/phases.hpp"
#include "core/scalars.hpp"

namespace espalier {

/// Where the time of one step of one rank went: a line of RUN/ranks/rank-00003.jsonl.
struct StepTimes {
  Index step = 0;
  double step_seconds = 0;
  PhaseSeconds seconds = {};
  std::array<std::uint64_t, num_axes> bytes_sent{};
  /// Mean seconds that a message between stages was on its way, of those that the rank already waited for when they
  /// were sent; 0: there was none.
  double activation_transit = 0;
  double gradient_transit = 0;
};

/// A line of metrics.jsonl; docs/running.md explains each field.
struct StepRecord {
  double loss = 0;  ///< nats per token
  double learning_rate = 0;
  double gradient_norm = 0;
  double loss_scale = 1;
  Index skipped_steps = 0;     ///< so far
  Index tokens = 0;            ///< so far
  Index valid_tokens = 0;      ///< of the step, that the loss counts
  double attention_share = 1;  ///< that separate documents leave of attention
  double tokens_per_second = 0;
  StepTimes times = {};  ///< of rank 0
  MemoryByCategory memory_peak = {};
  double gemm_fraction = 0;
  Index passed_over_samples = 0;
  std::optional<double> mfu = {};  ///< where the peak of the devices is known
  std::optional<double> loss_score = {};
  std::optional<double> gradient_norm_score = {};
  std::string anomaly = {};  ///< a spike or not finite, in the eyes of the spike guard; empty: neither
  std::optional<double> validation_loss = {};

  bool is_anomaly() const { return !anomaly.empty(); }
};

nlohmann::ordered_json to_json(const StepTimes& times);
nlohmann::ordered_json to_json(const StepRecord& record);

/// Of a line. @throws std::runtime_error that names the field which is missing, of another type or out of its range
StepTimes step_times_from_json(const nlohmann::json& line);
StepRecord step_record_from_json(const nlohmann::json& line);

/// The key of a validation, which is added to a line that was already written.
inline constexpr const char* validation_loss_key = "validation_loss";

}  // namespace espalier
