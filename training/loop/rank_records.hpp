// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "io/records/metrics.hpp"
#include "io/records/progress_file.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "training/loop/loop_observer.hpp"

namespace espalier {

/// What each rank writes about itself into the run directory: its progress (state/), its times by phase
/// (ranks/rank-00003.jsonl, with several ranks), and its trace (trace/).
class RankRecords : public LoopObserver {
 public:
  /// Collective; the run directory exists. `last_step` as for MetricsWriter.
  RankRecords(const RunConfig& config, const ProcessMesh& mesh, Index last_step);
  ~RankRecords() override;
  RankRecords(const RankRecords&) = delete;
  RankRecords& operator=(const RankRecords&) = delete;

  void before_step(Index step) override;
  /// Collective when the traced steps end.
  void after_step(const LoopStep& step) override;
  void rolled_back_to(Index step) override { open_metrics(step); }
  /// Writes the trace, if one is being recorded. Collective.
  void loop_ends(Index) override { end_trace(); }

  /// This rank exits cleanly: removes its progress file.
  void mark_finished();

 private:
  void open_metrics(Index last_step);
  bool traces(Index step) const;
  void end_trace();

  const RunConfig& config_;
  const ProcessMesh& mesh_;
  ProgressFile progress_;
  std::optional<MetricsWriter> metrics_;
};

}  // namespace espalier
