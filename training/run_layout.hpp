// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/cost.hpp"
#include "parallel/mesh_layout.hpp"
#include "parallel/pipeline_schedule.hpp"
#include "parallel/reduction_plan.hpp"
#include "training/run_config.hpp"

namespace espalier {

/// How a run lies on its ranks: worked out from the config, the same on every rank.
struct RunLayout {
  MeshLayout mesh;
  PipelineShape pipeline;
  std::vector<std::vector<ChunkLayers>> stages;  ///< [stage][chunk]
  bool sequence_parallel = false;
  int zero_stage = 0;
  ModelWork work;  ///< of the first rank of a tensor group, in fp32

  std::string text() const;  ///< "tensor 2 x data 1 x pipeline 4, 1f1b", with what else is switched on
};

/// @pre the config is valid for `world_size` ranks. Without parallel.layers_per_stage layers are balanced by counted
/// FLOPs.
RunLayout make_run_layout(const RunConfig& config, int world_size);

/// Layers of each stage (chunk by chunk in forward order), balanced by what the items of the model cost under the
/// recomputation of the stage that they lie on. `costs` is asked once for each mode.
std::vector<Index> balanced_layers(const RunConfig& config, int stages, int chunks,
                                   const std::function<LayerCosts(Recompute)>& costs);

/// How gradients are reduced. Where tiny tensors stand for large ones ([emulate] message_scale), buckets shrink with
/// them: as many of them as there would be, or nothing could be reduced before backward ends.
ReducerOptions reducer_options(const RunConfig& config, const RunLayout& layout);

/// The lists of all stages, with the tensor collectives inside each operation.
std::vector<PipelineSchedule> make_schedules(const RunLayout& layout);

/// @throws std::logic_error with the findings unless the lists are proven for the whole world
/// (parallel/schedule_check): our own mistake, found before anything runs.
void require_proven(const RunLayout& layout, const std::vector<PipelineSchedule>& stages);

}  // namespace espalier
