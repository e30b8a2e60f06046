// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/memory_ledger.hpp"
#include "core/phases.hpp"
#include "core/scalars.hpp"
#include "io/file.hpp"
#include "parallel/mesh/mesh_layout.hpp"

namespace espalier {

/// Where the time of one step of one rank went.
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

/// A line of metrics.jsonl.
struct RecordedStep {
  double loss = 0;  ///< nats per token
  double learning_rate = 0;
  double gradient_norm = 0;
  double loss_scale = 1;
  Index skipped_steps = 0;  ///< so far
  bool is_anomaly = false;  ///< a spike or not finite, in the eyes of the spike guard
  Index tokens = 0;         ///< so far
  double tokens_per_second = 0;
  double gemm_fraction = 0;
  std::optional<double> mfu = {};  ///< where the peak of the devices is known
  std::optional<double> validation_loss = {};
  StepTimes times = {};  ///< of rank 0
  MemoryByCategory memory_peak = {};
};

/// The lines of metrics.jsonl, and of a rank's file; a torn last line is passed over.
/// @throws Error (data) with file and line: text that is not a JSON object, lacks a field, or has a time below 0.
std::vector<RecordedStep> read_recorded_steps(const Path& path);
std::vector<StepTimes> read_step_times(const Path& path);

/// The phases that the object names: a prediction has none for checkpoints.
PhaseSeconds phases_from(const nlohmann::json& json);
MemoryByCategory memory_from(const nlohmann::json& json);

}  // namespace espalier
