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

/// Of a launch that resumes after `from_step` where the launch before left `previous`.
Restarts count_restarts(const std::optional<RunRecord>& previous, Index from_step);

/// Launches in a row without progress after which a run is not launched again: the first and three restarts.
inline constexpr Index max_without_progress = 4;

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
