// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/config/run_layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "core/error.hpp"
#include "core/ops/attention_library.hpp"
#include "core/types.hpp"
#include "models/layout_rules.hpp"
#include "models/part_layers.hpp"
#include "parallel/schedule/schedule_check.hpp"
#include "training/config/emulation.hpp"
#include "training/config/shard_over.hpp"
#include "training/config/with_compute_type.hpp"

namespace espalier {

Layout make_run_layout(const RunConfig& config, int world_size) {
  Layout layout = config.layout;
  layout.data = make_layout(world_size, layout.tensor, layout.data, layout.pipeline, layout.order).degree(Axis::dp);
  layout = with_shards(config, acting_layout(layout, config.model.shape));
  layout.layers = part_layers(config.model.shape, config.sequence_length, layout);
  return layout;
}

ModelWork first_rank_work(const RunConfig& config, const Layout& layout) {
  return model_work(config.model.shape, make_block_shape(config.model.shape, layout.tensor, layout.sequence_parallel,
                                                         layout.micro_batch, config.sequence_length));
}

std::optional<ScalarType> wire_type(const RunConfig& config) { return types_of_run(config).wire; }

TrainingTypes types_of_run(const RunConfig& config) {
  return types_of_program(espalier_implementation(exec_is_host, train_settings(config)), config.layout.precision);
}

TrainSettings train_settings(const RunConfig& config) {
  return {.rounds_gradients = config.precision.gradient_reduction == NumberType::compute,
          .fp32_residual = config.precision.residual == NumberType::state,
          .separate_documents = config.data.separates_documents(),
          .copies_state = config.checkpoint.async,
          .cudnn_attention = config.run.attention != to_string(AttentionLibrary::own)};
}

UnitBuffers unit_buffers(const Layout& layout, int stage) {
  return unit_buffers(layout, layout.chunks().at(static_cast<std::size_t>(stage)));
}

UnitList unit_list(const Layout& layout, int stage, const PipelineSchedule& schedule) {
  const std::vector<ChunkLayers> chunks = layout.chunks().at(static_cast<std::size_t>(stage));
  return unit_list(schedule, layers_of_chunk(chunks), unit_buffers(layout, chunks));
}

ReducerOptions reducer_options(const RunConfig& config, const Layout& layout, int stage) {
  return reducer_options(layout, layout.chunks().at(static_cast<std::size_t>(stage)), wire_type(config),
                         message_scale(config.emulate, Axis::dp));
}

std::vector<PipelineSchedule> make_schedules(const RunConfig& config, const Layout& layout) {
  std::vector<PipelineSchedule> stages = make_schedules(layout.pipeline_shape(config.model.shape.tied_embeddings));
  if (layout.tensor == 1)
    return stages;
  const ModelWork work = first_rank_work(config, layout);
  const std::vector<std::vector<ChunkLayers>> chunks = layout.chunks();
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    std::map<std::pair<int, OperationKind>, TensorCollectives> counted;  // by chunk and kind
    for (Operation& operation : stages[stage]) {
      const auto [entry, is_new] = counted.try_emplace({operation.chunk, operation.kind});
      if (is_new)
        entry->second = tensor_collectives(
            operation_work(work, chunks[stage].at(static_cast<std::size_t>(operation.chunk)), operation.kind));
      operation.tensor = entry->second;
    }
  }
  return stages;
}

void require_proven(const RunConfig& config, const Layout& layout, const std::vector<PipelineSchedule>& stages) {
  const MeshLayout mesh = layout.mesh();
  std::vector<const PipelineSchedule*> ranks;
  for (int rank = 0; rank < mesh.size(); ++rank)
    ranks.push_back(&stages[static_cast<std::size_t>(mesh.coordinates(rank)[Axis::pp])]);
  std::vector<std::string> problems =
      check_schedules(ranks, mesh, layout.pipeline_shape(config.model.shape.tied_embeddings));
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    const PipelineSchedule& schedule = stages[static_cast<std::size_t>(stage)];
    const UnitList units = unit_list(layout, stage, schedule);
    const std::string problem =
        check_unit_actions(units.actions, unit_passes(schedule, units.layers_of_chunk), units.buffers);
    if (!problem.empty())
      problems.push_back(fmt::format("stage {}: {}", stage, problem));
  }
  ESPALIER_ASSERT(problems.empty(), fmt::format("the schedule is not sound: {}", fmt::join(problems, "; ")));
}

}  // namespace espalier
