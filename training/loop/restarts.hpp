// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "io/records/run_details.hpp"
#include "io/records/run_directory.hpp"

namespace espalier {

/// How often a run was launched again without progress, for run.json: a job must not requeue itself for ever.
struct Restarts {
  Index from_step = 0;  ///< that this launch resumes after
  /// Launches in a row before this one that resumed there, failed and saved no checkpoint.
  Index num_without_progress = 0;

  static constexpr Index max_without_progress = 4;  ///< a first launch and three restarts

  bool operator==(const Restarts&) const = default;
};

/// Of a launch that resumes after `from_step` where the launch before left `previous`.
Restarts count_restarts(const std::optional<RunRecord>& previous, Index from_step);

/// For the details of run.json.
nlohmann::json to_json(const Restarts& restarts);

/// @throws Error (no_progress) when there were too many.
void require_progress(const Restarts& restarts, const Path& run_directory, const std::optional<RunRecord>& previous);

/// The launches whose steps the record of a run holds, for the details of run.json: those of `previous` and this one,
/// which is about to take `first_step` with `config`. The last hundred; launches whose steps were all taken again are
/// left out. Called before the config in the directory is replaced.
std::vector<LaunchRecord> history_with(const std::optional<RunRecord>& previous, const Path& run_directory,
                                       const std::string& config, Index first_step);

/// Begins a launch that takes `first_step` with `config`, and notes it in the history.
void begin_launch_with_history(RunDirectory& directory, const std::string& config, Index first_step);

}  // namespace espalier
