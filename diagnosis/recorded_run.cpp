// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/recorded_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "diagnosis/damaged_file.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/input_limits.hpp"
#include "io/machine.hpp"
#include "io/records/run_paths.hpp"
#include "io/records/run_progress.hpp"
#include "io/records/trace_file.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

constexpr double max_silent_seconds = 300;  // files of other hosts arrive late, and steps may be long

// False also where nobody may look: for guesses.
bool is_there(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

// @throws Error (usage) where nobody may look: it may well be a run, but not for whoever asks.
bool is_given(const Path& path) {
  std::error_code error;
  const bool found = std::filesystem::exists(path, error);
  if (error)
    throw Error(ExitCode::usage,
                {.what = "a directory of the run cannot be read",
                 .where = path.parent_path().string(),
                 .got = error.message(),
                 .wanted = "a directory that may be read and entered",
                 .todo = "check its permissions and those of its parent directories (ls -ld), or ask its owner"});
  return found;
}

// Where somebody names a part of a run, or what holds several: those runs, three of them.
std::vector<std::string> runs_near(const Path& path) {
  std::vector<std::string> runs;
  std::error_code error;
  const Path whole = std::filesystem::absolute(path, error).lexically_normal();
  for (Path part = whole; part.has_relative_path() && runs.empty(); part = part.parent_path())
    if (is_there(part / RunFile::record))
      runs.push_back(part.string());
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    if (is_there(entry.path() / RunFile::record))
      runs.push_back(entry.path().string());
  std::ranges::sort(runs);
  runs.resize(std::min<std::size_t>(runs.size(), 3));
  return runs;
}

// What lies there: "a file", "no such directory", "a directory without run.json"; the first part of the path that is a
// file where a directory must be.
std::string what_is_at(const Path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    return "a directory without run.json";
  if (is_there(path))
    return "a file";
  Path part;
  for (const Path& name : path) {
    part /= name;
    if (is_there(part) && !std::filesystem::is_directory(part, error))
      return fmt::format("no such directory: {} is a file", part.string());
  }
  return "no such directory";
}

[[noreturn]] void throw_no_run(const Path& path) {
  const std::vector<std::string> near = runs_near(path);
  throw Error(ExitCode::usage, {.what = "this is not a run directory",
                                .where = path.empty() ? "an empty path" : path.string(),
                                .got = what_is_at(path),
                                .wanted = "run.directory of a run of `espalier train`",
                                .todo = near.empty() ? "the last line of its log names it"
                                                     : fmt::format("did you mean {}?", fmt::join(near, " or "))});
}

RunRecord record_of(const Path& directory) {
  const Path path = directory / RunFile::record;
  if (!is_given(path))
    throw_no_run(directory);
  const nlohmann::json json = read_run_json(path);
  try {
    return run_record_from_json(json);
  } catch (const std::exception& error) {
    throw_damaged(path.string(), "run.json cannot be read", error.what());
  }
}

void read_details(RecordedRun& run) {
  const nlohmann::json& details = run.record.details;
  try {
    run.facts = facts_in(details);
    run.launches = history_in(details);
    run.steps_done = steps_done_in(details).value_or(0);
  } catch (const std::exception& error) {
    throw_damaged((run.directory / RunFile::record).string(), "the details of run.json cannot be read", error.what());
  }
}

void read_prediction(RecordedRun& run) {
  const Path path = run.directory / RunFile::prediction;
  if (!is_given(path)) {
    run.gaps.emplace_back(
        "no prediction.json: measured times are compared only among ranks and with the simulated schedule");
    return;
  }
  const nlohmann::json json = read_run_json(path);
  std::optional<PredictionRecord> prediction;
  try {
    prediction = prediction_from_json(json);
  } catch (const std::exception& error) {
    throw_damaged(path.string(), "prediction.json cannot be read", error.what());
  }
  if (!prediction) {
    run.gaps.emplace_back("prediction.json is from another version and was left out");
    return;
  }
  if (std::ssize(prediction->memory) != run.config.layout.pipeline)
    throw_damaged(path.string(), "prediction.json is not of this run", counted(std::ssize(prediction->memory), "stage"),
                  fmt::format("{}, as config.toml says", run.config.layout.pipeline),
                  "restore the file from a copy, or remove it: then times are compared only among ranks");
  if (const std::string& reason = prediction->outlook.why_not; !reason.empty())
    run.gaps.push_back("no prediction of the step's time: " + reason);
  run.predicted_time = prediction->outlook.time;
  run.predicted_memory = prediction->memory;
}

// A launch that ended in order has done a step, unless all of them were done before.
bool has_trained(const RecordedRun& run) {
  const bool in_order = run.record.state == RunState::completed || run.record.state == RunState::preempted;
  return in_order && run.facts.first_step <= run.config.total_steps();
}

// None where there is no file.
template <class Value>
std::vector<Value> lines_of(const RecordedRun& run, const Path& path, std::vector<Value> (*read)(const Path&)) {
  const bool given = is_given(path);
  std::vector<Value> lines = given ? read(path) : std::vector<Value>();
  if (given && lines.empty() && has_trained(run))
    throw_damaged(path.string(), "the run has trained, but its record is empty", "no whole line",
                  fmt::format("a line for each step: run.json says \"{}\"", to_string(run.record.state)));
  return lines;
}

Index step_of(const StepRecord& line) { return line.times.step; }
Index step_of(const StepTimes& line) { return line.step; }

// The steps that a record leaves out, between two lines or behind the last; empty where it has all.
template <class Value>
std::string hole_in(const std::vector<Value>& lines, Index steps_done) {
  const auto hole = std::adjacent_find(lines.begin(), lines.end(),
                                       [](const Value& a, const Value& b) { return step_of(b) != step_of(a) + 1; });
  if (hole != lines.end())
    return fmt::format("nothing between steps {} and {}", step_of(*hole), step_of(*std::next(hole)));
  if (!lines.empty() && step_of(lines.back()) < steps_done)
    return fmt::format("nothing after step {} of {}", step_of(lines.back()), steps_done);
  return "";
}

std::vector<StepRecord> steps_of(RecordedRun& run) {
  const Path path = run.directory / RunFile::metrics;
  std::vector<StepRecord> steps = lines_of(run, path, read_step_records);
  if (const std::string hole = hole_in(steps, run.steps_done); !hole.empty())
    run.gaps.push_back(std::string(RunFile::metrics) + " has " + hole);
  if (steps.empty() && has_trained(run))
    throw_damaged(path.string(), "the run has trained, but its record is missing", "no such file",
                  fmt::format("a line for each step: run.json says \"{}\"", to_string(run.record.state)));
  if (steps.empty())
    run.gaps.emplace_back(run.life == Life::alive ? "no step was finished yet"
                                                  : "the run ended before it finished a step");
  return steps;
}

// "rank 3", "ranks 1, 2", of many the first few.
std::string ranks_text(const std::vector<std::size_t>& ranks) {
  constexpr std::ptrdiff_t most = 8;
  return fmt::format("rank{} {}{}", ranks.size() > 1 ? "s" : "",
                     fmt::join(ranks.begin(), ranks.begin() + std::min(std::ssize(ranks), most), ", "),
                     std::ssize(ranks) > most ? ", ..." : "");
}

// Rank 0's own are in metrics.jsonl as well.
std::vector<std::vector<StepTimes>> ranks_of(RecordedRun& run) {
  std::vector<std::vector<StepTimes>> ranks(static_cast<std::size_t>(run.config.layout.num_devices()));
  std::vector<std::size_t> missing;
  std::map<std::string, std::vector<std::size_t>> ranks_with;  // each hole
  for (std::size_t rank = 0; ranks.size() > 1 && rank < ranks.size(); ++rank) {
    ranks[rank] = lines_of(run, rank_metrics_path(run.directory, static_cast<int>(rank)), read_step_times);
    if (const std::string hole = hole_in(ranks[rank], run.steps_done); !hole.empty())
      ranks_with[hole].push_back(rank);
    if (ranks[rank].empty() && !run.steps.empty())
      missing.push_back(rank);
  }
  if (ranks.front().empty())
    for (const StepRecord& step : run.steps)
      ranks.front().push_back(step.times);
  for (const auto& [hole, of_these] : ranks_with)
    run.gaps.push_back(fmt::format("ranks/ has {} of {}", hole, ranks_text(of_these)));
  if (!missing.empty())
    run.gaps.push_back(fmt::format("ranks/ has no times of {}: {}", ranks_text(missing),
                                   missing == std::vector<std::size_t>{0}
                                       ? "those in metrics.jsonl are taken"
                                       : "times are shown only if all ranks have them"));
  return ranks;
}

// Has the last launch done a step after which it wrote trace/? One that was killed wrote it after the last of them.
bool has_traced(const RecordedRun& run) {
  const RunConfig& config = run.config;
  const Index last = config.run.trace_first_step + config.run.trace_steps - 1;
  const Index wanted = has_trained(run) ? config.run.trace_first_step : last;
  return config.run.trace_steps > 0 && run.life != Life::alive && run.facts.first_step <= last && !run.steps.empty() &&
         step_of(run.steps.back()) >= wanted;
}

// Empty where no rank left one.
std::vector<Path> traces_of(RecordedRun& run) {
  std::vector<Path> traces(static_cast<std::size_t>(run.config.layout.num_devices()));
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; rank < traces.size(); ++rank) {
    const Path path = trace_path(run.directory / RunFolder::trace, static_cast<int>(rank));
    if (!is_given(path)) {
      missing.push_back(rank);
      continue;
    }
    read_trace(path);  // damage is reported before anything is drawn
    traces[rank] = path;
  }
  const bool has_none = missing.size() == traces.size();
  if (!missing.empty() && (!has_none || has_traced(run)))
    run.gaps.push_back(
        fmt::format("trace/ has no file of {}: {}", ranks_text(missing),
                    has_none ? "the timeline of a step cannot be drawn" : "the timeline shows what the others did"));
  return has_none ? std::vector<Path>() : traces;
}

std::optional<Index> newest_checkpoint_in(const Path& directory, const std::string& owner,
                                          std::vector<std::string>& gaps) {
  try {
    for (const CheckpointEntry& entry : find_checkpoints(directory))
      if (entry.complete && (owner.empty() || !may_be_of_another(entry, owner)))
        return entry.step;
  } catch (const Error& error) {
    gaps.push_back(fmt::format("the checkpoints cannot be listed: {}", error.report().got));
  }
  return std::nullopt;
}

double seconds_of(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

double time_of_change(const Path& path) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  return error ? 0 : seconds_of(std::chrono::file_clock::to_sys(time));
}

double last_sign_of_life_in(const RecordedRun& run) {
  double last =
      std::max(time_of_change(run.directory / RunFile::record), time_of_change(run.directory / RunFile::metrics));
  for (const RankProgress& progress : run.rank_progress)
    last = std::max(last, progress.alive);
  return last;
}

Life life_of(const RecordedRun& run) {
  if (run.record.state != RunState::running)
    return Life::ended;
  if (run.record.host == host_name())
    return is_alive_here(run.record) ? Life::alive : Life::gone;
  return run.read_at - run.last_sign_of_life < max_silent_seconds ? Life::alive : Life::silent;
}

// Those of the last launch: an earlier one may have had more. 0: it ended before it wrote how many.
int world_size_of(const RecordedRun& run) {
  if (run.facts.ranks > 0)
    return run.facts.ranks;
  int ranks = 0;
  while (is_given(rank_metrics_path(run.directory, ranks)))
    ++ranks;
  return ranks;
}

}  // namespace

RecordedRun read_recorded_run(const Path& directory) {
  RecordedRun run;
  run.directory = directory;
  run.record = record_of(directory);
  read_details(run);
  const Path config = directory / RunFile::config;
  run.config_text = read_run_file(config, LargestFile::config);
  run.config = recorded_config(run.config_text, config, world_size_of(run), run.facts);
  run.rank_progress = run_progress(directory);
  run.read_at = seconds_of(std::chrono::system_clock::now());
  run.last_sign_of_life = last_sign_of_life_in(run);
  run.life = life_of(run);
  run.steps = steps_of(run);
  run.ranks = ranks_of(run);
  read_prediction(run);
  run.newest_checkpoint = newest_checkpoint_in(directory / RunFolder::checkpoints, run.record.id, run.gaps);
  run.traces = traces_of(run);
  return run;
}

}  // namespace espalier
