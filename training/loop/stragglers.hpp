// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "parallel/mesh/process_mesh.hpp"
#include "training/loop/loop_observer.hpp"

namespace espalier {

/// A rank that takes longer than its peers for the same work.
struct Straggler {
  int rank = 0;
  double share = 0;  ///< by which its work takes longer than the median of its peers'
  bool operator==(const Straggler&) const = default;
};

/// The ranks whose seconds of work are more than 1 + `threshold` times the median of their peers. Peers are the other
/// ranks of the same stage, which do the same work. A rank alone in its stage is never a straggler. Pure.
std::vector<Straggler> find_stragglers(const std::vector<double>& work_seconds, const std::vector<int>& stages,
                                       double threshold);

/// Compares the work of the ranks: forward, backward, data and optimizer, without waiting for others. Each rank takes
/// the median of a window of steps; one all_gather at the end of the window compares them. A rank that is slow in two
/// windows in a row is reported, and reported again when it no longer is.
class StragglerWatch {
 public:
  /// Collective.
  StragglerWatch(const RunConfig::Stability& config, const ProcessMesh& mesh);

  /// After each step. Collective at the end of a window. @returns lines for the log, on rank 0: what has changed.
  std::vector<std::string> after_step(const StepReport& report);

  /// The stragglers at present, for run.json: rank, host, stage, share. On rank 0.
  nlohmann::json to_json() const;

 private:
  std::vector<std::string> compare(Index step);

  const ProcessMesh& mesh_;
  Index window_;
  double threshold_;
  std::vector<double> work_;         // of this rank, step by step of the window
  std::vector<int> stages_;          // of all ranks
  std::vector<std::string> hosts_;   // the same, on rank 0
  std::vector<Straggler> suspects_;  // of the last window
  std::vector<Straggler> reported_;
};

/// Notes changes of the stragglers, and keeps run.json up to date.
class StragglerNotes : public LoopObserver {
 public:
  /// Collective. `run` must outlive it.
  explicit StragglerNotes(const RunContext& run) : run_(run), watch_(run.config.stability, run.mesh) {}

  void after_step(const LoopStep& step) override;

 private:
  const RunContext& run_;
  StragglerWatch watch_;
};

}  // namespace espalier
