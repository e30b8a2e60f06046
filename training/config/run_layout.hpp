// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/cost.hpp"
#include "models/layout.hpp"
#include "models/rank_memory.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"
#include "parallel/schedule/unit_actions.hpp"
#include "planning/implementation.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// The layout that a config asks for, with what it leaves open filled in: replicas; layers, balanced by counted FLOPs;
/// the chunks of round_robin. What does nothing is off: ZeRO of one replica, sequence parallelism of one tensor rank.
/// @pre the config is valid for `world_size` ranks.
Layout make_run_layout(const RunConfig& config, int world_size);

/// What the layers of a layout do on the first rank of a tensor group, in fp32.
ModelWork first_rank_work(const RunConfig& config, const Layout& layout);

/// The 16-bit type in which gradients travel; none where they travel as they are.
std::optional<ScalarType> wire_type(const RunConfig& config);

/// Those of the program, with the settings of the config.
TrainingTypes types_of_run(const RunConfig& config);

/// The settings, beside the layout, that decide memory and messages.
TrainSettings train_settings(const RunConfig& config);

/// How the gradients of a stage are reduced.
ReducerOptions reducer_options(const RunConfig& config, const Layout& layout, int stage);

/// Whole layers of a stage that exist at a time.
UnitBuffers unit_buffers(const Layout& layout, int stage);

/// The actions on whole layers in a step of the stage.
UnitList unit_list(const Layout& layout, int stage, const PipelineSchedule& schedule);

/// The lists of all stages, with the tensor collectives inside each operation.
std::vector<PipelineSchedule> make_schedules(const RunConfig& config, const Layout& layout);

/// @throws std::logic_error with the findings unless the lists are proven for the whole world
/// (parallel/schedule/schedule_check.hpp): our own mistake, found before anything runs.
void require_proven(const RunConfig& config, const Layout& layout, const std::vector<PipelineSchedule>& stages);

}  // namespace espalier
