// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/find_end.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <optional>
#include <sstream>

namespace espalier {
namespace {

constexpr double hang_seconds = 60;  // of waiting, all ranks that wait

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    if (!line.empty())
      lines.push_back(line);
  return lines;
}

// Every rank that has not exited cleanly waits, or has given no sign of life, for a minute. Where other files of the
// run are newer by more, the ranks' progress has not reached this host and says nothing.
bool hangs(const RecordedRun& run) {
  double newest = 0;
  for (const RankProgress& progress : run.rank_progress) {
    if (run.read_at - progress.since <= hang_seconds)
      return false;
    newest = std::max(newest, progress.alive);
  }
  return !run.rank_progress.empty() && run.last_sign_of_life - newest <= hang_seconds;
}

std::string process_text(const RunRecord& record) {
  return fmt::format("process {} on {}, started {}", record.pid, record.host, record.started);
}

void add_progress(const RecordedRun& run, Finding& finding) {
  if (run.rank_progress.empty()) {
    finding.evidence.emplace_back("no rank recorded its progress (state/ is empty)");
    return;
  }
  std::vector<std::string> lines =
      lines_of(progress_report(run.rank_progress, run.life == Life::alive ? run.read_at : 0));
  finding.title += fmt::format("; {}", lines.back());
  lines.pop_back();
  finding.evidence.insert(finding.evidence.end(), lines.begin(), lines.end());
}

std::string how_far(const RecordedRun& run) {
  return run.steps.empty() ? std::string("no step was finished")
                           : fmt::format("the last step that was finished is {}", run.steps.back().times.step);
}

// A loss that was not finite before the last step was passed over.
bool has_diverged(const RecordedRun& run) {
  return run.record.exit_code == static_cast<int>(ExitCode::numerical) ||
         (!run.steps.empty() && !std::isfinite(run.steps.back().loss));
}

// What the same command would do, and what loses fewer steps the next time.
Change go_on(const RecordedRun& run) {
  const std::string from = run.newest_checkpoint
                               ? fmt::format("resumes from the checkpoint of step {}", *run.newest_checkpoint)
                               : "starts again at step 1, because there is no complete checkpoint";
  if (has_diverged(run))
    return {.setting = fmt::format("the same command {}, and would diverge again: first change what `stability` names, "
                                   "or a lower optimizer.learning_rate",
                                   from)};
  const Index interval = run.config.checkpoint.interval;
  return {.setting =
              fmt::format("the same command {}; {}", from,
                          interval == 0  ? "checkpoint.interval (now 0) saves during the run"
                          : interval > 1 ? fmt::format("a checkpoint.interval below {} loses fewer steps", interval)
                                         : "checkpoint.interval = 1 saves every step")};
}

// The cause, its title and what to do; none for a run that goes on or ended as it should.
std::optional<Finding> finding_of(const RecordedRun& run) {
  const RunRecord& record = run.record;
  switch (run.life) {
    case Life::ended: {
      if (record.state != RunState::failed)
        return std::nullopt;
      const std::vector<std::string> lines = lines_of(record.cause);
      return Finding{
          .cause = Cause::failed,
          .title = fmt::format("the run failed: {}", lines.empty() ? std::string("no cause is noted") : lines.front()),
          .changes = {go_on(run)}};
    }
    case Life::alive:
      if (!hangs(run))
        return std::nullopt;
      return Finding{.cause = Cause::hangs,
                     .title = "the run hangs: its process is alive, but no rank has made progress for a minute",
                     .changes = {{.setting = "stop it: run.communication_timeout ends such a wait automatically"}}};
    case Life::gone:
      return Finding{
          .cause = Cause::died,
          .title = fmt::format("the run did not exit cleanly ({}): killed, or its host failed", process_text(record)),
          .changes = {go_on(run)}};
    case Life::silent: break;
  }
  return Finding{
      .cause = Cause::silent,
      .title = fmt::format(
          "no progress has been recorded since {:%Y-%m-%dT%H:%M:%SZ}; its process cannot be seen from here ({})",
          fmt::gmtime(static_cast<std::time_t>(run.last_sign_of_life)), process_text(record)),
      .changes = {{.setting = fmt::format("check on {} whether it still runs, and stop it if it does", record.host)},
                  go_on(run)}};
}

}  // namespace

std::vector<Finding> find_end(const RecordedRun& run) {
  std::optional<Finding> found = finding_of(run);
  if (!found)
    return {};
  Finding& finding = *found;
  finding.risk = 1;
  finding.evidence.push_back(how_far(run));
  if (const std::vector<std::string> lines = lines_of(run.record.cause); lines.size() > 1)
    finding.evidence.insert(finding.evidence.end(), lines.begin() + 1, lines.end());
  const bool ended_together =
      run.record.exit_code == static_cast<int>(ExitCode::numerical);  // nobody waits for another
  if (!ended_together && !names_culprit(run.record.cause))            // else the cause lists their progress
    add_progress(run, finding);
  return {finding};
}

}  // namespace espalier
