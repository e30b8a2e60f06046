// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/memory_ledger.hpp"
#include "core/phases.hpp"
#include "io/records/run_facts.hpp"

// What stands in the details of run.json (RunRecord::details), each under its key. details_of() writes one of them, for
// RunDirectory::update(). Readers throw std::runtime_error where it is there and damaged.

namespace espalier {

/// "facts"; none of an older version.
nlohmann::json details_of(const RunFacts& facts);
RunFacts facts_in(const nlohmann::json& details);

/// A launch whose steps the record of a run holds.
struct LaunchRecord {
  Index first_step = 1;
  std::string started = {};               ///< UTC, ISO 8601
  std::vector<std::string> changes = {};  ///< of the config against the launch before: "optimizer.beta1: 1 (was 3)"
};
/// "history", in order; empty of an older version.
nlohmann::json details_of(const std::vector<LaunchRecord>& history);
std::vector<LaunchRecord> history_in(const nlohmann::json& details);

/// "restarts": how often a run was launched again without progress. A job must not requeue itself for ever.
struct Restarts {
  Index from_step = 0;  ///< that this launch resumes after
  /// Launches in a row before this one that resumed there, failed and saved no checkpoint.
  Index num_without_progress = 0;

  bool operator==(const Restarts&) const = default;
};
nlohmann::json details_of(const Restarts& restarts);
/// @throws also where there is none
Restarts restarts_in(const nlohmann::json& details);

/// "steps_done": by all launches, when the last one ended.
nlohmann::json details_of_steps_done(Index steps);
std::optional<Index> steps_done_in(const nlohmann::json& details);

/// "memory": the peak of the rank with the highest, at the end of a launch, in bytes.
struct MeasuredMemory {
  MemoryByCategory peak = {};
  MemoryByCategory predicted = {};
  std::size_t library_bytes = 0;  ///< beside `peak`, in libraries
  std::size_t library_bytes_of_rank_0 = 0;
};
nlohmann::json details_of(const MeasuredMemory& memory);
std::optional<MeasuredMemory> memory_in(const nlohmann::json& details);

/// "time": means of the steps of a launch.
struct MeasuredTime {
  double step_seconds = 0;
  Index steps = 0;
  std::vector<PhaseSeconds> stages = {};         ///< the mean over the ranks of each
  std::optional<double> predicted_seconds = {};  ///< of a step
};
nlohmann::json details_of(const MeasuredTime& time);
/// @throws also where there is none
MeasuredTime time_in(const nlohmann::json& details);

}  // namespace espalier
