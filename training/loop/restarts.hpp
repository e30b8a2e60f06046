// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/scalars.hpp"
#include "io/records/run_directory.hpp"

namespace espalier {

/// How often a run has been started again without coming further, for run.json: a job that requeues itself must not do
/// so for ever.
struct Restarts {
  Index from_step = 0;  ///< that this start goes on after
  Index fruitless =
      0;  ///< starts in a row, this one not counted, that went on after it, failed and left no newer checkpoint

  static constexpr Index most_fruitless = 4;  ///< a first start and three restarts

  bool operator==(const Restarts&) const = default;
};

/// Of a start that goes on after `from_step` where the start before left `previous`.
Restarts count_restarts(const std::optional<RunRecord>& previous, Index from_step);

/// For the details of run.json.
nlohmann::json to_json(const Restarts& restarts);

/// @throws Error (no_progress) when there were too many.
void require_progress(const Restarts& restarts, const Path& run_directory, const std::optional<RunRecord>& previous);

/// The starts whose steps the record of a run holds, for the details of run.json: those of `previous` and this one,
/// which is about to take `first_step` with `config`. [{"first_step", "started" (UTC), "changes": ["key: new (was
/// old)"]}], the last hundred; starts whose steps were all taken again are left out. Called before the config in the
/// directory is replaced.
nlohmann::json history_with(const std::optional<RunRecord>& previous, const Path& run_directory,
                            const std::string& config, Index first_step);

/// Signs a start on that takes `first_step` with `config`, and notes it in the history.
void sign_on_with_history(RunDirectory& directory, const std::string& config, Index first_step);

}  // namespace espalier
