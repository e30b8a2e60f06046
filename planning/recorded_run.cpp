// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/recorded_run.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "io/checkpoint_directory.hpp"
#include "io/json_fields.hpp"
#include "io/machine.hpp"
#include "io/run_positions.hpp"
#include "io/toml_config.hpp"
#include "io/units.hpp"
#include "planning/damaged_file.hpp"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr double most_silent_seconds = 300;  // files of other hosts arrive late, and steps may be long

// False also where nobody may look.
bool is_there(const Path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
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

[[noreturn]] void throw_no_run(const Path& path) {
  std::error_code error;
  const std::vector<std::string> near = runs_near(path);
  throw Error(ExitCode::usage, {.what = "this is not the directory of a run",
                                .where = path.empty() ? "an empty path" : path.string(),
                                .got = std::filesystem::is_directory(path, error) ? "a directory without run.json"
                                       : is_there(path)                           ? "a file"
                                                                                  : "no such directory",
                                .wanted = "run.directory of a run of `espalier train`",
                                .todo = near.empty() ? "the last line of its log names it"
                                                     : fmt::format("did you mean {}?", fmt::join(near, " or "))});
}

RunRecord record_of(const Path& directory) {
  const Path path = directory / "run.json";
  if (!is_there(path))
    throw_no_run(directory);
  const Json json = read_run_json(path);
  RunRecord record;
  try {
    record = run_record_from_json(json);
  } catch (const std::exception& error) {
    throw_damaged(path.string(), "run.json cannot be read", error.what());
  }
  for (const char* const known : {"running", "completed", "preempted", "failed"})
    if (record.state == known)
      return record;
  throw_damaged(path.string(), "run.json has an unknown state", fmt::format("\"{}\"", record.state),
                "running, completed, preempted or failed");
}

std::vector<RunFacts::SlowLink> slow_links_of(const nlohmann::json& links) {
  std::vector<RunFacts::SlowLink> result;
  for (const Axis axis : {Axis::tp, Axis::dp, Axis::pp}) {
    const auto found = links.find(to_string(axis));
    if (found == links.end())
      continue;
    for (const nlohmann::json& link : any_field(*found, "slow"))
      result.push_back({axis, field<int>(link, "from"), field<int>(link, "to"), field<double>(link, "seconds"),
                        field<double>(*found, "typical_seconds")});
  }
  return result;
}

RunFacts facts_of(const RunRecord& record, const Path& path) {
  RunFacts facts;
  try {
    const nlohmann::json json = object_field_or_empty(record.details, "facts");
    facts.program = field_or(json, "program", facts.program);
    facts.cpu = field_or(json, "cpu", facts.cpu);
    facts.hosts = field_or(json, "hosts", facts.hosts);
    facts.host_of_rank = field_or(json, "host_of_rank", facts.host_of_rank);
    facts.ranks = field_or(json, "ranks", facts.ranks);
    facts.threads = field_or(json, "threads", facts.threads);
    facts.gemm_library = field_or(json, "gemm_library", facts.gemm_library);
    facts.gemm_flops = field_or(json, "gemm_flops", facts.gemm_flops);
    facts.first_step = field_or(json, "first_step", facts.first_step);
    facts.slow_links = slow_links_of(object_field_or_empty(json, "links"));
  } catch (const std::exception& error) {
    throw_damaged(path.string(), "the details of run.json cannot be read", error.what());
  }
  return facts;
}

// Rank 0's file first; a gap in the numbers ends them.
std::vector<Path> rank_files(const Path& directory, const char* extension) {
  std::vector<Path> files;
  for (;;) {
    Path path = directory / fmt::format("rank-{:05}{}", files.size(), extension);
    if (!std::filesystem::exists(path))
      return files;
    files.push_back(std::move(path));
  }
}

// A resolved config has all keys: one that is missing is from another version, and a default would tell another story.
void require(bool given, const char* key, const Path& path) {
  if (!given)
    throw_damaged(path.string(), "config.toml is not one that `espalier train` resolved", fmt::format("no {}", key),
                  "all keys that say how the work was cut");
}

ConfigReader reader_of(const std::string& config, const Path& path) {
  try {
    return ConfigReader(config, path.string(), {});
  } catch (const Error& error) {  // here it is no mistake of whoever runs the command
    throw_damaged(error.report().where.empty() ? path.string() : error.report().where, error.report().what,
                  error.report().got);
  }
}

// With parallel.data left open, the number of ranks that wrote decides.
MeshLayout mesh_of(ConfigReader& reader, int world_size, const Path& path) {
  Index tensor = 1;
  Index pipeline = 1;
  Index data = 0;
  std::string order = "tp,dp,pp";
  require(reader.read("parallel", "tensor", tensor, {.min = 1}), "parallel.tensor", path);
  require(reader.read("parallel", "pipeline", pipeline, {.min = 1}), "parallel.pipeline", path);
  require(reader.read("parallel", "data", data, {.min = 0}), "parallel.data", path);
  reader.read("parallel", "order", order);
  if (tensor > world_size || pipeline > world_size)
    throw_damaged(path.string(), "the layout needs more ranks than left a record",
                  fmt::format("tensor {}, pipeline {}, {} ranks", tensor, pipeline, world_size));
  try {
    return make_layout(world_size, static_cast<int>(tensor), static_cast<int>(data), static_cast<int>(pipeline),
                       axis_order_from(order));
  } catch (const Error& error) {
    throw_damaged(path.string(), error.report().what, error.report().got);
  }
}

GptConfig shape_of(ConfigReader& reader, const Path& path) {
  GptConfig shape;
  reader.read("model", "vocab_size", shape.vocab_size);
  reader.read("model", "max_sequence_length", shape.max_sequence_length);
  require(reader.read("model", "num_layers", shape.num_layers), "model.num_layers", path);
  reader.read("model", "hidden_size", shape.hidden_size);
  reader.read("model", "num_heads", shape.num_heads);
  reader.read("model", "ffn_hidden_size", shape.ffn_hidden_size);
  return shape;
}

void read_emulation(ConfigReader& reader, RunSetup& setup) {
  double backward_input = 0;
  double backward_weight = 0;
  Index ranks_per_node = 0;
  reader.read_seconds("emulate", "forward", setup.emulated_forward);
  reader.read_seconds("emulate", "backward_input", backward_input);
  reader.read_seconds("emulate", "backward_weight", backward_weight);
  reader.read_seconds("emulate", "latency", setup.links.within_node.latency);
  reader.read("emulate", "bandwidth", setup.links.within_node.bytes_per_second);
  reader.read_seconds("emulate", "node_latency", setup.links.between_nodes.latency);
  reader.read("emulate", "node_bandwidth", setup.links.between_nodes.bytes_per_second);
  reader.read("emulate", "ranks_per_node", ranks_per_node);
  reader.read("emulate", "message_scale", setup.links.message_scale);
  reader.read("emulate", "planned_microbatches", setup.planned_microbatches);
  setup.emulated_backward = backward_input + backward_weight;
  setup.links.ranks_per_node = static_cast<int>(ranks_per_node);
}

RunSetup setup_of(const std::string& config, const Path& path, int world_size) {
  ConfigReader reader = reader_of(config, path);
  RunSetup setup;
  setup.shape = shape_of(reader, path);
  setup.mesh = mesh_of(reader, world_size, path);
  reader.read("parallel", "schedule", setup.schedule);
  reader.read("parallel", "virtual_stages", setup.virtual_stages, {.min = 1});
  reader.read("parallel", "assignment", setup.assignment);
  reader.read("parallel", "recompute", setup.recompute);
  reader.read("parallel", "layers_per_stage", setup.layers_per_stage);
  reader.read("parallel", "zero_stage", setup.zero_stage);
  require(reader.read("batch", "global_batch_size", setup.global_batch_size, {.min = 1}), "batch.global_batch_size",
          path);
  require(reader.read("batch", "micro_batch_size", setup.micro_batch_size, {.min = 1}), "batch.micro_batch_size", path);
  require(reader.read("batch", "sequence_length", setup.sequence_length, {.min = 1}), "batch.sequence_length", path);
  reader.read("precision", "compute", setup.compute);
  reader.read("precision", "gradient_reduction", setup.gradient_reduction);
  reader.read("precision", "initial_loss_scale", setup.initial_loss_scale);
  reader.read("precision", "minimum_loss_scale", setup.minimum_loss_scale);
  reader.read("optimizer", "learning_rate", setup.peak_learning_rate);
  reader.read("optimizer", "warmup_steps", setup.warmup_steps);
  reader.read("optimizer", "clip_grad_norm", setup.clip_grad_norm);
  reader.read("checkpoint", "interval", setup.checkpoint_interval);
  reader.read("run", "steps", setup.total_steps);
  if (Index tokens = 0; reader.read("run", "tokens", tokens) && tokens > 0 && setup.total_steps == 0)
    setup.total_steps = (tokens + setup.tokens_per_step() - 1) / setup.tokens_per_step();
  read_emulation(reader, setup);
  if (const std::vector<std::string> wrong = reader.problems(); !wrong.empty()) {
    const std::size_t colon = wrong.front().find(": ", path.string().size());  // behind the position
    throw_damaged(wrong.front().substr(0, colon), "config.toml is not one that `espalier train` resolved",
                  wrong.front().substr(colon + 2));
  }
  const std::vector<std::string> impossible = problems(setup.shape);
  if (!impossible.empty() || setup.stages() * setup.virtual_stages > setup.shape.num_layers)
    throw_damaged(path.string(), "config.toml describes a model that cannot be built",
                  impossible.empty() ? "more stages than layers" : impossible.front());
  return setup;
}

std::optional<RunPrediction> prediction_of(const Path& path, int stages, std::vector<std::string>& gaps) {
  if (!std::filesystem::exists(path)) {
    gaps.emplace_back(
        "no prediction.json: measured times are compared among ranks and with the simulated schedule only");
    return std::nullopt;
  }
  const Json json = read_run_json(path);
  RunPrediction prediction;
  try {
    if (any_field(json, "format") != "espalier-prediction" || any_field(json, "format_version") != 1) {
      gaps.emplace_back("prediction.json is from another version and was left out");
      return std::nullopt;
    }
    prediction.step_seconds = field_or(json, "step_seconds", 0.0);
    prediction.error_share = field_or(json, "error_share", 0.0);
    prediction.source = field_or(json, "source", std::string());
    for (const Json& stage : any_field(json, "stages"))
      prediction.stages.push_back({.seconds = phases_from(object_field_or_empty(stage, "seconds")),
                                   .memory = memory_from(object_field_or_empty(stage, "memory_bytes"))});
  } catch (const std::exception& error) {
    throw_damaged(path.string(), "prediction.json cannot be read", error.what());
  }
  if (prediction.stages.size() != static_cast<std::size_t>(stages))
    throw_damaged(path.string(), "prediction.json is not of this run", counted(std::ssize(prediction.stages), "stage"),
                  fmt::format("{}, as config.toml says", stages),
                  "take the file from a copy, or remove it: times are then compared among ranks only");
  return prediction;
}

// A start that ended in order has done a step, unless all of them were done before.
bool has_trained(const RecordedRun& run) {
  const bool in_order = run.record.state == "completed" || run.record.state == "preempted";
  return in_order && (run.setup.total_steps == 0 || run.facts.first_step <= run.setup.total_steps);
}

// None where there is no file.
template <class Value>
std::vector<Value> lines_of(const RecordedRun& run, const Path& path, std::vector<Value> (*read)(const Path&)) {
  const bool exists = std::filesystem::exists(path);
  std::vector<Value> lines = exists ? read(path) : std::vector<Value>();
  if (exists && lines.empty() && has_trained(run))
    throw_damaged(path.string(), "the run has trained, and its record is empty", "no whole line",
                  fmt::format("a line for each step: run.json says \"{}\"", run.record.state));
  return lines;
}

std::vector<RecordedStep> steps_of(RecordedRun& run) {
  const Path path = run.directory / "metrics.jsonl";
  std::vector<RecordedStep> steps = lines_of(run, path, read_recorded_steps);
  if (steps.empty() && has_trained(run))
    throw_damaged(path.string(), "the run has trained, and its record is missing", "no such file",
                  fmt::format("a line for each step: run.json says \"{}\"", run.record.state));
  if (steps.empty())
    run.gaps.emplace_back(run.life == Life::alive ? "no step was finished yet"
                                                  : "the run ended before it finished a step");
  return steps;
}

// Rank 0's own are in metrics.jsonl as well.
std::vector<std::vector<StepTimes>> ranks_of(RecordedRun& run) {
  std::vector<std::vector<StepTimes>> ranks(static_cast<std::size_t>(run.setup.world_size()));
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; ranks.size() > 1 && rank < ranks.size(); ++rank) {
    ranks[rank] = lines_of(run, run.directory / "ranks" / fmt::format("rank-{:05}.jsonl", rank), read_step_times);
    if (ranks[rank].empty() && !run.steps.empty())
      missing.push_back(rank);
  }
  if (ranks.front().empty())
    for (const RecordedStep& step : run.steps)
      ranks.front().push_back(step.times);
  if (!missing.empty())
    run.gaps.push_back(fmt::format(
        "ranks/ has no times of rank{} {}{}: {}", missing.size() > 1 ? "s" : "",
        fmt::join(missing.begin(), missing.begin() + std::min<std::ptrdiff_t>(std::ssize(missing), 8), ", "),
        missing.size() > 8 ? ", ..." : "",
        missing == std::vector<std::size_t>{0} ? "those in metrics.jsonl are taken"
                                               : "where the time goes is told of all ranks or not at all"));
  return ranks;
}

std::optional<Index> newest_checkpoint_in(const Path& directory, std::vector<std::string>& gaps) {
  try {
    for (const CheckpointEntry& entry : find_checkpoints(directory))
      if (entry.complete)
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
  for (const Position& position : run.positions)
    last = std::max(last, position.alive);
  return last;
}

Life life_of(const RecordedRun& run) {
  if (run.record.state != "running")
    return Life::signed_off;
  if (run.record.host == host_name())
    return is_alive_here(run.record) ? Life::alive : Life::gone;
  const double silent = seconds_of(std::chrono::system_clock::now()) - run.last_sign_of_life;
  return silent < most_silent_seconds ? Life::alive : Life::silent;
}

// Those of the last start: an earlier one may have had more.
int world_size_of(const RecordedRun& run) {
  if (run.facts.ranks > 0)
    return run.facts.ranks;
  return std::max(1, static_cast<int>(rank_files(run.directory / "ranks", ".jsonl").size()));
}

}  // namespace

std::string RunFacts::host_of(std::size_t rank) const {
  return rank < host_of_rank.size() && host_of_rank[rank] < hosts.size() ? hosts[host_of_rank[rank]] : "unknown host";
}

Index RunSetup::num_microbatches() const {
  return std::max<Index>(1, global_batch_size / (micro_batch_size * mesh.degree(Axis::dp)));
}

std::vector<Index> RunSetup::layers_of_stages() const {
  const auto num_stages = static_cast<std::size_t>(stages());
  if (num_stages == 1)
    return {shape.num_layers};
  if (layers_per_stage.empty() || layers_per_stage.size() % num_stages != 0)
    return {};
  std::vector<Index> layers(num_stages);
  for (std::size_t part = 0; part < layers_per_stage.size(); ++part)
    layers[part % num_stages] += layers_per_stage[part];
  return layers;
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
  run.config = read_run_file(directory / "config.toml");
  run.setup = setup_of(run.config, directory / "config.toml", world_size_of(run));
  run.positions = run_positions(directory);
  run.last_sign_of_life = last_sign_of_life_in(run);
  run.life = life_of(run);
  run.steps = steps_of(run);
  run.ranks = ranks_of(run);
  run.prediction = prediction_of(directory / "prediction.json", run.setup.stages(), run.gaps);
  run.newest_checkpoint = newest_checkpoint_in(directory / "checkpoints", run.gaps);
  run.traces = rank_files(directory / "trace", ".json");
  return run;
}

}  // namespace espalier
