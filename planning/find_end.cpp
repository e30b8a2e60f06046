// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/find_end.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
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

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Every rank that has not signed off waits, or has given no sign of life, for a minute.
bool hangs(const RecordedRun& run) {
  return run.alive && !run.positions.empty() &&
         std::all_of(run.positions.begin(), run.positions.end(),
                     [](const Position& position) { return now() - position.since > hang_seconds; });
}

void add_positions(const RecordedRun& run, Finding& finding) {
  if (run.positions.empty()) {
    finding.evidence.emplace_back("no rank left its position (state/ is empty)");
    return;
  }
  std::vector<std::string> lines = lines_of(positions_report(run.positions, run.alive ? now() : 0));
  finding.title += fmt::format("; {}", lines.back());
  lines.pop_back();
  finding.evidence.insert(finding.evidence.end(), lines.begin(), lines.end());
}

std::string how_far(const RecordedRun& run) {
  return run.steps.empty() ? std::string("no step was finished")
                           : fmt::format("the last step that was finished is {}", run.steps.back().times.step);
}

}  // namespace

std::vector<Finding> find_end(const RecordedRun& run) {
  const bool running = run.record.state == "running";
  if (running && run.alive && !hangs(run))
    return {};
  if (!running && run.record.state != "failed")
    return {};
  Finding finding{.cause = running ? (run.alive ? Cause::hangs : Cause::died) : Cause::failed, .title = {}, .risk = 1};
  if (finding.cause == Cause::failed)
    finding.title =
        fmt::format("the run failed: {}", lines_of(run.record.cause).empty() ? std::string("no cause is noted")
                                                                             : lines_of(run.record.cause).front());
  else if (finding.cause == Cause::hangs)
    finding.title = "the run hangs: its process lives, and no rank has moved for a minute";
  else
    finding.title =
        fmt::format("the run ended without signing off (process {} on {}, started {}): killed, or its host failed",
                    run.record.pid, run.record.host, run.record.started);
  finding.evidence.push_back(how_far(run));
  if (const std::vector<std::string> lines = lines_of(run.record.cause); lines.size() > 1)
    finding.evidence.insert(finding.evidence.end(), lines.begin() + 1, lines.end());
  if (run.record.cause.find("culprit") == std::string::npos)  // else the cause tells the positions already
    add_positions(run, finding);
  finding.changes = {{.setting = finding.cause == Cause::hangs
                                     ? "stop it: run.communication_timeout ends such a wait by itself"
                                     : "the same command goes on from the newest complete checkpoint; a lower "
                                       "checkpoint.interval loses fewer steps"}};
  return {finding};
}

}  // namespace espalier
