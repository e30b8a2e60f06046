// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/run_layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "core/error.hpp"
#include "parallel/schedule_check.hpp"
#include "training/emulated_network.hpp"
#include "training/with_compute_type.hpp"

namespace espalier {
namespace {

Recompute recompute_of(const RunConfig::Parallel& parallel, std::size_t stage) {
  const std::vector<std::string>& by_stage = parallel.recompute_per_stage;
  return parse_recompute(by_stage.empty() ? parallel.recompute : by_stage.at(stage)).value();
}

// "recompute full", "recompute full on stage 0, selective on stages 1, 3"; empty where nothing is.
std::string recompute_text(const std::vector<std::vector<ChunkLayers>>& stages) {
  std::string text;
  for (const Recompute mode : {Recompute::selective, Recompute::full}) {
    std::vector<std::size_t> which;
    for (std::size_t stage = 0; stage < stages.size(); ++stage)
      if (stages[stage].front().recompute == mode)
        which.push_back(stage);
    if (which.empty())
      continue;
    text += fmt::format("{}{}", text.empty() ? "recompute " : ", ", to_string(mode));
    if (which.size() < stages.size())
      text += fmt::format(" on stage{} {}", which.size() > 1 ? "s" : "", fmt::join(which, ", "));
  }
  return text;
}

}  // namespace

std::string RunLayout::text() const {
  std::string text = mesh.text();
  if (pipeline.stages > 1)
    text += fmt::format(", {}", to_string(pipeline.kind));
  if (pipeline.chunks > 1)
    text += fmt::format(" x {} virtual stages", pipeline.chunks);
  if (sequence_parallel)
    text += ", sequence-parallel";
  if (zero_stage > 0)
    text += fmt::format(", ZeRO-{}", zero_stage);
  if (const std::string recomputed = recompute_text(stages); !recomputed.empty())
    text += ", " + recomputed;
  return text;
}

std::vector<Index> balanced_layers(const RunConfig& config, int stages, int chunks,
                                   const std::function<LayerCosts(Recompute)>& costs) {
  std::map<Recompute, LayerCosts> by_mode;
  std::vector<LayerCosts> by_part;
  for (int part = 0; part < stages * chunks; ++part) {
    const Recompute mode = recompute_of(config.parallel, static_cast<std::size_t>(part % stages));
    if (!by_mode.contains(mode))
      by_mode[mode] = costs(mode);
    by_part.push_back(by_mode[mode]);
  }
  return balance_layers(config.model.shape.num_layers, by_part);
}

RunLayout make_run_layout(const RunConfig& config, int world_size) {
  const RunConfig::Parallel& wanted = config.parallel;
  RunLayout layout;
  layout.mesh = make_layout(world_size, static_cast<int>(wanted.tensor), static_cast<int>(wanted.data),
                            static_cast<int>(wanted.pipeline), axis_order_from(wanted.order));
  layout.sequence_parallel = wanted.sequence_parallel && wanted.tensor > 1;
  const int replicas = layout.mesh.degree(Axis::dp);
  layout.zero_stage = replicas > 1 ? static_cast<int>(wanted.zero_stage) : 0;

  const int stages = layout.mesh.degree(Axis::pp);
  const Index num_layers = config.model.shape.num_layers;
  const bool round_robin = wanted.assignment == "round_robin";
  const int chunks = static_cast<int>(round_robin ? num_layers / stages : wanted.virtual_stages);
  layout.pipeline = {
      .kind = parse_schedule_kind(wanted.schedule).value(),
      .stages = stages,
      .chunks = chunks,
      .microbatches = static_cast<int>(config.batch.global_batch_size / (config.batch.micro_batch_size * replicas)),
      .gathers_weights = layout.zero_stage > 0};
  std::vector<Index> layers = wanted.layers_per_stage;
  if (layers.empty() || stages == 1)
    layers = round_robin ? std::vector<Index>(static_cast<std::size_t>(num_layers), 1)
                         : balanced_layers(config, stages, chunks, [&](Recompute mode) {
                             return layer_flops(config.model.shape, config.batch.sequence_length, mode);
                           });
  layout.stages = partition_layers(layers, stages, chunks);
  for (std::size_t stage = 0; stage < layout.stages.size(); ++stage)
    for (ChunkLayers& chunk : layout.stages[stage])
      chunk.recompute = recompute_of(wanted, stage);
  layout.work = model_work<Fp32>(
      config.model.shape, make_block_shape(config.model.shape, layout.mesh.degree(Axis::tp), layout.sequence_parallel,
                                           config.batch.micro_batch_size, config.batch.sequence_length));
  return layout;
}

namespace {

// None where gradients travel as they are.
std::optional<ScalarType> wire_type(const RunConfig::Precision& precision) {
  if (precision.gradient_reduction == "state")
    return std::nullopt;
  return with_compute_type(precision.compute, []<class T>() -> std::optional<ScalarType> {
    return has_masters<T> ? std::optional(scalar_type_of<T>()) : std::nullopt;
  });
}

}  // namespace

ReducerOptions reducer_options(const RunConfig& config, const RunLayout& layout) {
  ReducerOptions options{.zero_stage = layout.zero_stage, .wire = wire_type(config.precision)};
  for (Index* const bytes : {&options.smallest_bucket_bytes, &options.bucket_bytes})
    if (const double scale = message_scale(config.emulate, Axis::dp); scale > 1)
      *bytes = std::max<Index>(1, static_cast<Index>(static_cast<double>(*bytes) / scale));
  return options;
}

std::vector<PipelineSchedule> make_schedules(const RunLayout& layout) {
  std::vector<PipelineSchedule> stages;
  for (int stage = 0; stage < layout.pipeline.stages; ++stage) {
    PipelineSchedule& list = stages.emplace_back(make_schedule(layout.pipeline, stage));
    if (layout.mesh.degree(Axis::tp) == 1)
      continue;
    const std::vector<ChunkLayers>& chunks = layout.stages[static_cast<std::size_t>(stage)];
    std::map<std::pair<int, OperationKind>, TensorCollectives> counted;  // by chunk and kind
    for (Operation& operation : list) {
      const auto [entry, is_new] = counted.try_emplace({operation.chunk, operation.kind});
      if (is_new)
        entry->second = tensor_collectives(
            operation_work(layout.work, chunks.at(static_cast<std::size_t>(operation.chunk)), operation.kind));
      operation.tensor = entry->second;
    }
  }
  return stages;
}

void require_proven(const RunLayout& layout, const std::vector<PipelineSchedule>& stages) {
  std::vector<const PipelineSchedule*> ranks;
  for (int rank = 0; rank < layout.mesh.size(); ++rank)
    ranks.push_back(&stages[static_cast<std::size_t>(layout.mesh.coordinates(rank)[Axis::pp])]);
  const std::vector<std::string> problems = check_schedules(ranks, layout.mesh, layout.pipeline);
  ESPALIER_ASSERT(problems.empty(), fmt::format("the schedule is not sound: {}", fmt::join(problems, "; ")));
}

}  // namespace espalier
