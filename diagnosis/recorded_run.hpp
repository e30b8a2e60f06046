// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnosis/recorded_setup.hpp"
#include "diagnosis/recorded_steps.hpp"
#include "io/records/run_directory.hpp"
#include "parallel/observe/rank_progress.hpp"

// What a run left in its directory, read back: the input of `diagnose` and of the report.

namespace espalier {

/// What the last launch ran on, as training/loop/run_facts.hpp noted it; empty and 0 where an older version did not.
struct RunFacts {
  std::string program;
  std::string cpu;
  std::vector<std::string> hosts;
  std::vector<std::size_t> host_of_rank;
  int ranks = 0;
  int threads = 0;       ///< of a rank
  int host_threads = 0;  ///< of all ranks of the host where most of them share a core
  int host_cores = 0;    ///< that these may run on
  std::string gemm_library;
  double gemm_flops = 0;  ///< per second, all ranks together
  Index first_step = 1;
  double unigram_loss = 0;    ///< nats per token of a model that knows how often each token occurs
  Index train_tokens = 0;     ///< in the training files
  bool fast_16_bits = false;  ///< the machine multiplies 16 bits on units of their own

  /// A link that a launch found slow (training/loop/run_facts.hpp); of ranks of the world.
  struct SlowLink {
    Axis axis = Axis::dp;
    int from = 0;
    int to = 0;
    double seconds = 0;          ///< of a small message
    double typical_seconds = 0;  ///< over the other links of its axis
  };
  Index steps_done = 0;  ///< by all launches, when the last one ended; 0: not known
  std::vector<SlowLink> slow_links;

  std::string host_of(std::size_t rank) const;  ///< "unknown host" where not noted
};

/// A launch whose steps the record holds.
struct RecordedLaunch {
  Index first_step = 1;
  std::vector<std::string> changes;  ///< of the config against the launch before: "optimizer.learning_rate: 1 (was 3)"
};

/// prediction.json: what `train` expected before it measured.
struct RunPrediction {
  struct Stage {
    PhaseSeconds seconds = {};
    MemoryByCategory memory = {};
  };
  double step_seconds = 0;  ///< 0: of memory alone (fp64, say, has no estimate)
  double error_share = 0;   ///< of the times; 0: not known
  bool calibrated = false;  ///< on CPUs, by their measured speed with as many ranks at work
  std::string source;
  std::vector<Stage> stages;
  bool has_times() const { return step_seconds > 0 && !stages.empty(); }
};

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
  std::vector<RecordedLaunch> launches;  ///< in order; empty where an older version did not note them
  Life life = Life::ended;
  double read_at = 0;            ///< seconds of the system clock, as all times here
  double last_sign_of_life = 0;  ///< the newest line or progress of any rank
  std::string config;            ///< the text of config.toml
  RunSetup setup;
  std::vector<RecordedStep> steps;  ///< by step; empty where the run ended before its first
  /// [rank][step]; of a rank that left none: empty. Of rank 0 alone: from metrics.jsonl.
  std::vector<std::vector<StepTimes>> ranks;
  std::optional<RunPrediction> prediction;
  std::vector<RankProgress> rank_progress;      ///< of the ranks that did not exit cleanly
  std::vector<Path> traces;                     ///< trace/rank-*.json, by rank; an empty path: it left none
  std::optional<Index> newest_checkpoint = {};  ///< the step of the newest complete one
  std::vector<std::string> gaps;                ///< what is missing or was left out, a sentence each

  /// Is there a prediction, and does it have times?
  bool is_predicted() const { return prediction && prediction->has_times(); }

  /// Do all ranks run on one host? False where that is not noted.
  bool is_on_one_host() const { return facts.hosts.size() == 1; }

  /// A number for the node that the rank is on: as [emulate] imitates nodes, else by host; 0 where that is not noted.
  int node_of(int rank) const;
};

/// Reads a run directory. A torn last line is passed over, as whoever follows a living run sees one; what is merely
/// missing is a gap.
/// @throws Error: usage if this is no run directory; data if a file in it is damaged or of another version, or if the
/// run trained and has no metrics.
RecordedRun read_recorded_run(const Path& directory);

}  // namespace espalier
