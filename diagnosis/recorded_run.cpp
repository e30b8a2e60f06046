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
#include "io/json_fields.hpp"
#include "io/machine.hpp"
#include "io/records/run_progress.hpp"
#include "io/records/trace_file.hpp"
#include "io/units.hpp"
#include "models/layout_rules.hpp"

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
    if (is_there(part / "run.json"))
      runs.push_back(part.string());
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    if (is_there(entry.path() / "run.json"))
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
  const Path path = directory / "run.json";
  if (!is_given(path))
    throw_no_run(directory);
  const nlohmann::json json = read_run_json(path);
  try {
    return run_record_from_json(json);
  } catch (const std::exception& error) {
    throw_damaged(path.string(), "run.json cannot be read", error.what());
  }
}

constexpr IntegerRange ranks_range{0, 1 << 18};    // more than any job has
constexpr IntegerRange threads_range{0, 1 << 30};  // on a GPU all that it can hold
constexpr RealRange times_range{.min = 0, .max = 1e12};

std::vector<RunFacts::SlowLink> slow_links_of(const nlohmann::json& links, int ranks) {
  const IntegerRange ends{0, std::max(0, ranks - 1)};
  std::vector<RunFacts::SlowLink> result;
  for (const Axis axis : trained_axes) {
    const nlohmann::json& of_axis = object_field_or_empty(links, to_string(axis));
    if (of_axis.empty())
      continue;
    for (const nlohmann::json& link : list_field(of_axis, "slow"))
      result.push_back({axis, field<int>(link, "from", ends), field<int>(link, "to", ends),
                        field<double>(link, "seconds", times_range),
                        field<double>(of_axis, "typical_seconds", times_range)});
  }
  return result;
}

void read_hosts(const nlohmann::json& json, RunFacts& facts) {
  if (!json.contains("hosts") || !json.contains("host_of_rank"))
    return;
  facts.hosts = values_field<std::string>(json, "hosts");
  if (facts.hosts.empty())
    refuse_field("hosts", json.at("hosts"), "the names of the hosts, at least one");
  const IntegerRange known{0, static_cast<Index>(facts.hosts.size()) - 1};
  facts.host_of_rank = values_field<std::size_t>(json, "host_of_rank", known);
  if (std::ssize(facts.host_of_rank) != facts.ranks)
    refuse_field("host_of_rank", json.at("host_of_rank"), fmt::format("a host for each of {} ranks", facts.ranks));
}

RunFacts facts_of(const RunRecord& record, const Path& path) {
  RunFacts facts;
  try {
    const nlohmann::json& json = object_field_or_empty(record.details, "facts");
    facts.program = field_or(json, "program", facts.program);
    facts.cpu = field_or(json, "cpu", facts.cpu);
    facts.ranks = field_or(json, "ranks", facts.ranks, ranks_range);
    read_hosts(json, facts);
    facts.threads = field_or(json, "threads", facts.threads, threads_range);
    facts.host_threads = field_or(json, "host_threads", facts.host_threads, threads_range);
    facts.host_cores = field_or(json, "host_cores", facts.host_cores, ranks_range);
    facts.gemm_library = field_or(json, "gemm_library", facts.gemm_library);
    facts.gemm_flops = field_or(json, "gemm_flops", facts.gemm_flops, RealRange{.min = 0, .max = 1e30});
    facts.first_step = field_or(json, "first_step", facts.first_step, steps_range);
    facts.unigram_loss = field_or(json, "unigram_loss", facts.unigram_loss, RealRange{.min = 0});
    facts.train_tokens = field_or(json, "train_tokens", facts.train_tokens, count_range);
    facts.fast_16_bits = field_or(json, "fast_16_bits", facts.fast_16_bits);
    facts.steps_done = field_or(record.details, "steps_done", facts.steps_done, steps_range);
    facts.slow_links = slow_links_of(object_field_or_empty(json, "links"), facts.ranks);
  } catch (const std::exception& error) {
    throw_damaged(path.string(), "the details of run.json cannot be read", error.what());
  }
  return facts;
}

std::vector<RecordedLaunch> launches_of(const RunRecord& record, const Path& path) {
  std::vector<RecordedLaunch> launches;
  try {
    if (record.details.contains("history"))
      for (const nlohmann::json& launch : list_field(record.details, "history"))
        launches.push_back(
            {field<Index>(launch, "first_step", steps_range), values_field<std::string>(launch, "changes")});
  } catch (const std::exception& error) {
    throw_damaged(path.string(), "the details of run.json cannot be read", error.what());
  }
  return launches;
}

std::optional<RunPrediction> prediction_of(const Path& path, int stages, std::vector<std::string>& gaps) {
  if (!is_given(path)) {
    gaps.emplace_back(
        "no prediction.json: measured times are compared only among ranks and with the simulated schedule");
    return std::nullopt;
  }
  const nlohmann::json json = read_run_json(path);
  RunPrediction prediction;
  try {
    if (field<std::string>(json, "format") != "espalier-prediction" || field<Index>(json, "format_version") != 1) {
      gaps.emplace_back("prediction.json is from another version and was left out");
      return std::nullopt;
    }
    prediction.step_seconds = field_or(json, "step_seconds", 0.0, times_range);
    prediction.error_share = field_or(json, "error_share", 0.0, times_range);
    prediction.calibrated = field_or(json, "calibrated", false);
    prediction.source = field_or(json, "source", std::string());
    if (const auto reason = field_or(json, "why_no_times", std::string()); !reason.empty())
      gaps.push_back("no prediction of the step's time: " + reason);
    for (const nlohmann::json& stage : list_field(json, "stages"))
      prediction.stages.push_back({.seconds = phases_from(object_field_or_empty(stage, "seconds")),
                                   .memory = memory_from(object_field_or_empty(stage, "memory_bytes"))});
  } catch (const std::exception& error) {
    throw_damaged(path.string(), "prediction.json cannot be read", error.what());
  }
  if (prediction.stages.size() != static_cast<std::size_t>(stages))
    throw_damaged(path.string(), "prediction.json is not of this run", counted(std::ssize(prediction.stages), "stage"),
                  fmt::format("{}, as config.toml says", stages),
                  "restore the file from a copy, or remove it: then times are compared only among ranks");
  return prediction;
}

// A launch that ended in order has done a step, unless all of them were done before.
bool has_trained(const RecordedRun& run) {
  const bool in_order = run.record.state == "completed" || run.record.state == "preempted";
  return in_order && (run.setup.total_steps == 0 || run.facts.first_step <= run.setup.total_steps);
}

// None where there is no file.
template <class Value>
std::vector<Value> lines_of(const RecordedRun& run, const Path& path, std::vector<Value> (*read)(const Path&)) {
  const bool given = is_given(path);
  std::vector<Value> lines = given ? read(path) : std::vector<Value>();
  if (given && lines.empty() && has_trained(run))
    throw_damaged(path.string(), "the run has trained, but its record is empty", "no whole line",
                  fmt::format("a line for each step: run.json says \"{}\"", run.record.state));
  return lines;
}

Index step_of(const RecordedStep& line) { return line.times.step; }
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

std::vector<RecordedStep> steps_of(RecordedRun& run) {
  const Path path = run.directory / "metrics.jsonl";
  std::vector<RecordedStep> steps = lines_of(run, path, read_recorded_steps);
  if (const std::string hole = hole_in(steps, run.facts.steps_done); !hole.empty())
    run.gaps.push_back("metrics.jsonl has " + hole);
  if (steps.empty() && has_trained(run))
    throw_damaged(path.string(), "the run has trained, but its record is missing", "no such file",
                  fmt::format("a line for each step: run.json says \"{}\"", run.record.state));
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
  std::vector<std::vector<StepTimes>> ranks(static_cast<std::size_t>(run.setup.layout.num_devices()));
  std::vector<std::size_t> missing;
  std::map<std::string, std::vector<std::size_t>> ranks_with;  // each hole
  for (std::size_t rank = 0; ranks.size() > 1 && rank < ranks.size(); ++rank) {
    ranks[rank] = lines_of(run, run.directory / "ranks" / fmt::format("rank-{:05}.jsonl", rank), read_step_times);
    if (const std::string hole = hole_in(ranks[rank], run.facts.steps_done); !hole.empty())
      ranks_with[hole].push_back(rank);
    if (ranks[rank].empty() && !run.steps.empty())
      missing.push_back(rank);
  }
  if (ranks.front().empty())
    for (const RecordedStep& step : run.steps)
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
  const RunSetup& setup = run.setup;
  const Index last = setup.trace_first_step + setup.trace_steps - 1;
  const Index wanted = has_trained(run) ? setup.trace_first_step : last;
  return setup.trace_steps > 0 && run.life != Life::alive && run.facts.first_step <= last && !run.steps.empty() &&
         step_of(run.steps.back()) >= wanted;
}

// Empty where no rank left one.
std::vector<Path> traces_of(RecordedRun& run) {
  std::vector<Path> traces(static_cast<std::size_t>(run.setup.layout.num_devices()));
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; rank < traces.size(); ++rank) {
    const Path path = run.directory / "trace" / fmt::format("rank-{:05}.json", rank);
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
  double last = std::max(time_of_change(run.directory / "run.json"), time_of_change(run.directory / "metrics.jsonl"));
  for (const RankProgress& progress : run.rank_progress)
    last = std::max(last, progress.alive);
  return last;
}

Life life_of(const RecordedRun& run) {
  if (run.record.state != "running")
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
  while (is_given(run.directory / "ranks" / fmt::format("rank-{:05}.jsonl", ranks)))
    ++ranks;
  return ranks;
}

}  // namespace

std::string RunFacts::host_of(std::size_t rank) const {
  return rank < host_of_rank.size() && host_of_rank[rank] < hosts.size() ? hosts[host_of_rank[rank]] : "unknown host";
}

int RecordedRun::node_of(int rank) const {
  if (setup.links.ranks_per_node > 0)
    return rank / setup.links.ranks_per_node;
  const std::vector<std::size_t>& hosts = facts.host_of_rank;
  return static_cast<std::size_t>(rank) < hosts.size() ? static_cast<int>(hosts[static_cast<std::size_t>(rank)]) : 0;
}

RecordedRun read_recorded_run(const Path& directory) {
  RecordedRun run;
  run.directory = directory;
  run.record = record_of(directory);
  run.facts = facts_of(run.record, directory / "run.json");
  run.launches = launches_of(run.record, directory / "run.json");
  run.config = read_run_file(directory / "config.toml", LargestFile::config);
  run.setup = recorded_setup(run.config, directory / "config.toml", world_size_of(run));
  int& ranks_per_node = run.setup.ranks_per_node;
  while (ranks_per_node < run.setup.layout.num_devices() && run.node_of(ranks_per_node) == run.node_of(0))
    ++ranks_per_node;
  run.setup.layout = with_shards(run.setup.layout, ranks_per_node, default_max_summed_at_once);
  run.rank_progress = run_progress(directory);
  run.read_at = seconds_of(std::chrono::system_clock::now());
  run.last_sign_of_life = last_sign_of_life_in(run);
  run.life = life_of(run);
  run.steps = steps_of(run);
  run.ranks = ranks_of(run);
  run.prediction = prediction_of(directory / "prediction.json", run.setup.layout.pipeline, run.gaps);
  run.newest_checkpoint = newest_checkpoint_in(directory / "checkpoints", run.record.id, run.gaps);
  run.traces = traces_of(run);
  return run;
}

}  // namespace espalier
