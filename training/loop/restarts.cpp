// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/restarts.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "io/config/config_diff.hpp"
#include "io/input_limits.hpp"
#include "io/json_fields.hpp"

namespace espalier {
namespace {

std::optional<Restarts> restarts_of(const RunRecord& record) {
  try {
    return restarts_in(record.details);
  } catch (const std::runtime_error&) {  // of an older program, or edited
    return std::nullopt;
  }
}

constexpr std::size_t max_launches = 100;
constexpr std::size_t max_changes = 20;
constexpr std::size_t longest_value = 400;  // of a change: readers take lines of longest_text at most

std::string shortened(const std::string& value) {
  return value.empty() ? "absent" : value.size() <= longest_value ? value : value.substr(0, longest_value) + "...";
}

// Empty where the record has none that this program wrote.
std::vector<LaunchRecord> history_of(const std::optional<RunRecord>& previous) {
  try {
    return previous ? history_in(previous->details) : std::vector<LaunchRecord>();
  } catch (const std::runtime_error&) {  // edited
    return {};
  }
}

// Empty where there is no config of a launch before, or none that can be read.
std::vector<std::string> changes_to(const std::string& config, const Path& run_directory) {
  std::vector<std::string> changes;
  try {
    for (const ConfigDifference& each :
         diff_configs(read_file(run_directory / RunFile::config, ExitCode::data, LargestFile::config), config))
      if (changes.size() < max_changes)
        changes.push_back(
            fmt::format("{}: {} (was {})", each.key, shortened(each.new_value), shortened(each.old_value)));
  } catch (const std::exception&) {  // it is about to be replaced, whatever it is
  }
  return changes;
}

// A launch that was stopped and has done no step has come no further, either.
bool ended_well(const RunRecord& record, Index from_step) {
  if (record.state != RunState::preempted)
    return record.state == RunState::completed;
  try {
    return steps_done_in(record.details).value_or(from_step + 1) > from_step;
  } catch (const std::runtime_error&) {  // edited
    return true;
  }
}

}  // namespace

Restarts count_restarts(const std::optional<RunRecord>& previous, Index from_step) {
  Restarts restarts{.from_step = from_step};
  if (!previous)
    return restarts;
  if (const auto before = restarts_of(*previous);
      before && from_step <= before->from_step && !ended_well(*previous, before->from_step))
    restarts.num_without_progress = before->num_without_progress + 1;
  return restarts;
}

void require_progress(const Restarts& restarts, const Path& run_directory, const std::optional<RunRecord>& previous) {
  if (restarts.num_without_progress < max_without_progress)
    return;
  throw Error(
      ExitCode::no_progress,
      {.what =
           fmt::format("{} launches in a row have saved no checkpoint: do not requeue", restarts.num_without_progress),
       .where = run_directory.string(),
       .got = fmt::format("each resumed after step {}; the last one: {}", restarts.from_step,
                          previous->cause.empty() ? "killed or crashed" : previous->cause),
       .wanted = "a new checkpoint",
       .todo = "find out why (run.json, metrics.jsonl, the log; checkpoint.interval may be longer than the job); "
               "then launch once with --retry"});
}

std::vector<LaunchRecord> history_with(const std::optional<RunRecord>& previous, const Path& run_directory,
                                       const std::string& config, Index first_step) {
  std::vector<LaunchRecord> history;
  std::vector<std::string> changes;
  for (const LaunchRecord& launch : history_of(previous))
    if (launch.first_step < first_step)
      history.push_back(launch);
    else  // its steps are taken again, with what it has changed
      changes.insert(changes.end(), launch.changes.begin(), launch.changes.end());
  const std::vector<std::string> own = changes_to(config, run_directory);
  changes.insert(changes.end(), own.begin(), own.end());
  if (first_step == 1)
    changes.clear();
  history.push_back({.first_step = first_step,
                     .started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))),
                     .changes = changes});
  if (history.size() > max_launches)
    history.erase(history.begin(), history.end() - static_cast<std::ptrdiff_t>(max_launches));
  return history;
}

void begin_launch_with_history(RunDirectory& directory, const std::string& config, Index first_step) {
  const std::vector<LaunchRecord> history = history_with(directory.previous(), directory.path(), config, first_step);
  directory.begin_launch(config);
  directory.update(details_of(history));
}

}  // namespace espalier
