// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnosis/recorded_config.hpp"
#include "diagnosis/recorded_steps.hpp"
#include "io/records/prediction_record.hpp"
#include "io/records/run_details.hpp"
#include "io/records/run_directory.hpp"
#include "parallel/observe/rank_progress.hpp"

// What a run left in its directory, read back: the input of `diagnose` and of the report.

namespace espalier {

/// What became of the process of a run, as far as it can be seen from this machine.
enum class Life {
  ended,  ///< run.json says how it ended
  alive,  ///< it runs here; or it runs on another host, and gave a sign of life in the last five minutes
  gone,   ///< it ran here, and runs no more
  silent  ///< it ran on another host, out of sight from here, and gives no sign of life
};

/// A run directory as plain data.
struct RecordedRun {
  Path directory;
  RunRecord record;  ///< run.json
  RunFacts facts;
  Index steps_done = 0;                ///< by all launches, when the last one ended; 0: not known
  std::vector<LaunchRecord> launches;  ///< in order; empty where an older version did not note them
  Life life = Life::ended;
  double read_at = 0;             ///< seconds of the system clock, as all times here
  double last_sign_of_life = 0;   ///< the newest line or progress of any rank
  std::string config_text;        ///< of config.toml
  RunConfig config;               ///< the same, with its layout on the ranks that it had
  std::vector<StepRecord> steps;  ///< by step; empty where the run ended before its first
  /// [rank][step]; of a rank that left none: empty. Of rank 0 alone: from metrics.jsonl.
  std::vector<std::vector<StepTimes>> ranks;
  std::optional<TimePrediction> predicted_time;    ///< where there is one (of fp64, say, there is none)
  std::vector<MemoryByCategory> predicted_memory;  ///< by stage
  std::vector<RankProgress> rank_progress;         ///< of the ranks that did not exit cleanly
  std::vector<Path> traces;                        ///< trace/rank-*.json, by rank; an empty path: it left none
  std::optional<Index> newest_checkpoint = {};     ///< the step of the newest complete one
  std::vector<std::string> gaps;                   ///< what is missing or was left out, a sentence each

  /// Do all ranks run on one host? False where that is not noted.
  bool is_on_one_host() const { return facts.hosts.size() == 1; }

  int node_of(int rank) const { return espalier::node_of(rank, config, facts); }
};

/// Reads a run directory. A torn last line is passed over, as whoever follows a living run sees one; what is merely
/// missing is a gap.
/// @throws Error: usage if this is no run directory; data if a file in it is damaged or of another version, or if the
/// run trained and has no metrics.
RecordedRun read_recorded_run(const Path& directory);

}  // namespace espalier
