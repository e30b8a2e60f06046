// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/validate_config.hpp"

#include <fmt/format.h>

#include <numeric>
#include <optional>

#include "io/toml_config.hpp"
#include "parallel/pipeline_schedule.hpp"
#include "parallel/process_mesh.hpp"

namespace espalier {
namespace {

// The multiples of `unit` around `value`.
std::string nearest_multiples(Index value, Index unit) {
  const Index below = value / unit * unit;
  return below > 0 ? fmt::format("{} and {}", below, below + unit) : fmt::format("{}", unit);
}

std::optional<MeshLayout> check_mesh(const RunConfig& c, ConfigReader& reader, int world_size) {
  try {
    return make_layout(world_size, static_cast<int>(c.parallel.tensor), static_cast<int>(c.parallel.data),
                       static_cast<int>(c.parallel.pipeline), axis_order_from(c.parallel.order));
  } catch (const Error& error) {
    const ErrorReport& report = error.report();
    reader.problem("parallel", "data",
                   fmt::format("{}; got {}, wanted {}; {}", report.what, report.got, report.wanted, report.todo));
    return std::nullopt;
  }
}

void check_batch(const RunConfig& c, ConfigReader& reader, Index replicas) {
  const Index unit = replicas * c.batch.micro_batch_size;
  if (unit > 0 && c.batch.global_batch_size % unit != 0)
    reader.problem("batch", "global_batch_size",
                   fmt::format("{} is not divisible by micro_batch_size {} x {} replicas; the nearest that are: {}",
                               c.batch.global_batch_size, c.batch.micro_batch_size, replicas,
                               nearest_multiples(c.batch.global_batch_size, unit)));
}

void check_tensor(const RunConfig& c, ConfigReader& reader) {
  const Index tensor = c.parallel.tensor;
  const auto wants_multiple = [&](const char* section, const char* key, Index value) {
    if (value % tensor != 0)
      reader.problem(section, key,
                     fmt::format("{} cannot be shared by {} ranks of tensor; the nearest that can: {}", value, tensor,
                                 nearest_multiples(value, tensor)));
  };
  wants_multiple("model", "num_heads", c.model.shape.num_heads);
  wants_multiple("model", "ffn_hidden_size", c.model.shape.ffn_hidden_size);
  if (c.model.shape.vocab_size < tensor)
    reader.problem(
        "model", "vocab_size",
        fmt::format("{} is less than the {} ranks of tensor that share it", c.model.shape.vocab_size, tensor));
  const Index rows = c.batch.micro_batch_size * c.batch.sequence_length;
  if (c.parallel.sequence_parallel && rows % tensor != 0)
    reader.problem(
        "parallel", "sequence_parallel",
        fmt::format("micro_batch_size {} x sequence_length {} = {} rows cannot be shared by {} ranks of "
                    "tensor; the nearest numbers of rows that can: {}",
                    c.batch.micro_batch_size, c.batch.sequence_length, rows, tensor, nearest_multiples(rows, tensor)));
}

void check_round_robin(const RunConfig& c, ConfigReader& reader) {
  if (c.parallel.virtual_stages != 1 || !c.parallel.layers_per_stage.empty())
    reader.problem("parallel", "assignment",
                   "round_robin makes each layer a chunk of its own: leave virtual_stages and layers_per_stage away");
  if (c.model.shape.num_layers % c.parallel.pipeline != 0)
    reader.problem("parallel", "assignment",
                   fmt::format("round_robin deals {} layers out to {} stages unevenly; the nearest numbers of layers "
                               "that divide: {}",
                               c.model.shape.num_layers, c.parallel.pipeline,
                               nearest_multiples(c.model.shape.num_layers, c.parallel.pipeline)));
}

void check_pipeline(const RunConfig& c, ConfigReader& reader) {
  const Index layers = c.model.shape.num_layers;
  const Index stages = c.parallel.pipeline;
  const bool round_robin = c.parallel.assignment == "round_robin";
  const auto kind = parse_schedule_kind(c.parallel.schedule);  // an unknown one is reported already
  if (round_robin)
    check_round_robin(c, reader);
  const Index chunks = round_robin ? std::max<Index>(1, layers / stages) : c.parallel.virtual_stages;
  if (chunks > 1 && stages == 1)
    reader.problem("parallel", round_robin ? "assignment" : "virtual_stages",
                   fmt::format("{} chunks a stage need a pipeline of two stages or more", chunks));
  if (chunks > 1 && kind && !allows_chunks(*kind))
    reader.problem("parallel", "schedule",
                   fmt::format("{} runs one chunk a stage, not {}; interleaved, gpipe and sequential run several",
                               c.parallel.schedule, chunks));
  if (stages > layers)
    reader.problem("parallel", "pipeline",
                   fmt::format("{} stages are more than the {} layers; the most is {}", stages, layers, layers));
  else if (stages * chunks > layers)
    reader.problem("parallel", "virtual_stages",
                   fmt::format("{} stages x {} virtual stages are more than the {} layers", stages, chunks, layers));
  const std::vector<Index>& given = c.parallel.layers_per_stage;
  if (given.empty() || round_robin)
    return;
  const Index sum = std::accumulate(given.begin(), given.end(), Index{0});
  if (static_cast<Index>(given.size()) != stages * chunks)
    reader.problem("parallel", "layers_per_stage",
                   fmt::format("has {} numbers, wanted {} (pipeline {} x virtual_stages {})", given.size(),
                               stages * chunks, stages, chunks));
  else if (sum != layers)
    reader.problem("parallel", "layers_per_stage", fmt::format("sums up to {}, but there are {} layers", sum, layers));
}

}  // namespace

void validate_run_config(const RunConfig& c, ConfigReader& reader, int world_size) {
  for (const std::string& problem : problems(c.model.shape))
    reader.problem("model", problem.substr(0, problem.find(' ')), problem);
  if (c.data.train.empty())
    reader.problem("data", "train", "no token file is given, wanted at least one");
  if (c.batch.sequence_length > c.model.shape.max_sequence_length)
    reader.problem("batch", "sequence_length",
                   fmt::format("{} is longer than the model's max_sequence_length {}", c.batch.sequence_length,
                               c.model.shape.max_sequence_length));
  if (c.run.steps == 0 && c.run.tokens == 0)
    reader.problem("run", "steps", "neither steps nor tokens say when the run ends");
  if (c.optimizer.minimum_learning_rate > c.optimizer.learning_rate)
    reader.problem(
        "optimizer", "minimum_learning_rate",
        fmt::format("{} is above learning_rate {}", c.optimizer.minimum_learning_rate, c.optimizer.learning_rate));
  const std::optional<MeshLayout> mesh = check_mesh(c, reader, world_size);
  // On a mesh that is wrong there are the replicas that were asked for.
  check_batch(c, reader, mesh ? mesh->degree(Axis::dp) : std::max<Index>(1, c.parallel.data));
  check_tensor(c, reader);
  check_pipeline(c, reader);
}

std::vector<std::string> config_warnings(const RunConfig& c, int world_size) {
  std::vector<std::string> warnings;
  const Index replicas = world_size / (c.parallel.tensor * c.parallel.pipeline);
  if (c.parallel.zero_stage > 0 && replicas == 1)
    warnings.emplace_back("parallel.zero_stage does nothing: there is one replica, nobody to share with");
  if (c.parallel.sequence_parallel && c.parallel.tensor == 1)
    warnings.emplace_back("parallel.sequence_parallel does nothing: tensor is 1");
  if (c.parallel.pipeline == 1 && !c.parallel.layers_per_stage.empty())
    warnings.emplace_back("parallel.layers_per_stage does nothing: there is one stage");
  const Index microbatches = c.batch.global_batch_size / std::max<Index>(1, c.batch.micro_batch_size * replicas);
  if (c.parallel.pipeline > 1 && microbatches < c.parallel.pipeline)
    warnings.push_back(
        fmt::format("{} micro-batches keep at most {} of {} stages busy: lower batch.micro_batch_size, or raise "
                    "batch.global_batch_size",
                    microbatches, microbatches, c.parallel.pipeline));
  if (c.data.validation.empty() && (c.run.eval_interval > 0 || c.run.eval_samples > 0))
    warnings.emplace_back("run.eval_interval and run.eval_samples do nothing: data.validation names no files");
  return warnings;
}

}  // namespace espalier
