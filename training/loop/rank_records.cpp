// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/rank_records.hpp"

#include "io/records/run_directory.hpp"
#include "io/records/run_paths.hpp"
#include "io/records/trace_file.hpp"
#include "parallel/collectives/collectives.hpp"
#include "training/loop/step_records.hpp"

namespace espalier {
namespace {

// With the times of messages between stages.
StepTimes rank_times(const StepReport& report) {
  StepTimes times = step_times(report);
  times.activation_transit = report.transit.activations.mean();
  times.gradient_transit = report.transit.gradients.mean();
  return times;
}

}  // namespace

RankRecords::RankRecords(const RunConfig& config, const ProcessMesh& mesh, Index last_step)
    : config_(config),
      mesh_(mesh),
      progress_(Path(config.run.directory) / RunFolder::state, mesh.world().rank(), sizeof(RankProgress)) {
  mesh_.world().keep_progress_in(&progress_.as<RankProgress>());
  open_metrics(last_step);
}

RankRecords::~RankRecords() { mesh_.world().keep_progress_in(nullptr); }

void RankRecords::open_metrics(Index last_step) {
  if (mesh_.world().size() > 1)
    metrics_.emplace(rank_metrics_path(config_.run.directory, mesh_.world().rank()), last_step);
}

bool RankRecords::traces(Index step) const {
  return step >= config_.run.trace_first_step && step < config_.run.trace_first_step + config_.run.trace_steps;
}

void RankRecords::before_step(Index step) {
  Timeline& timeline = mesh_.world().timeline();
  if (traces(step) && !timeline.is_on())
    timeline.switch_on();
}

void RankRecords::after_step(const LoopStep& step) {
  const StepReport& report = step.report;
  if (metrics_)
    metrics_->append(to_json(rank_times(report)));
  if (report.stop || !traces(report.step + 1) || step.is_last)
    end_trace();
}

void RankRecords::end_trace() {
  if (!mesh_.world().timeline().is_on())
    return;
  mesh_.world().timeline().switch_off();
  const Path directory = Path(config_.run.directory) / RunFolder::trace;
  const PerAxis coordinates = mesh_.coordinates();
  write_trace(
      directory, mesh_.world().rank(),
      trace_process_name(mesh_.world().rank(), coordinates[Axis::pp], coordinates[Axis::dp], coordinates[Axis::tp]),
      mesh_.world().timeline().take());
  barrier(mesh_.world());
  if (mesh_.world().rank() == 0)
    merge_traces(directory, mesh_.world().size());
}

void RankRecords::mark_finished() {
  mesh_.world().rank_progress().mark_finished();
  mesh_.world().keep_progress_in(nullptr);
  progress_.remove();
}

}  // namespace espalier
