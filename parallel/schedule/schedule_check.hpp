// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

struct MeshLayout;

/// Checks the lists of all stages of one pipeline before they run:
///  1. each list by itself (check_list): every part of the work once, in order, with its messages;
///  2. each pair of stages: messages of one kind are received in the order in which they are sent;
///  3. all together (run_schedules): every stage comes to its end, there is no deadlock.
/// @returns at most ten sentences that name the stage, the operation and what is wrong; empty: correct. A later part is
/// left out when an earlier one has found something. Pure.
std::vector<std::string> check_schedules(const std::vector<PipelineSchedule>& stages, const PipelineShape& shape);

/// The same for a whole world, one list a rank (ranks may share it): all pipelines, and the order of collectives in
/// every group (operations with tensor collectives in the tp groups; starts of reductions and gather_weights in the
/// groups that sum over dp, cp and ep). The ranks of a stage normally have one list. It is compared rank by rank, but
/// checked once; a pipeline is checked once for each combination of lists that occurs. If no stage has two lists, the
/// world runs through if one pipeline does: all ranks of a stage can go in step, so a collective along tp or dp finds
/// its members together, and no other order of events ends differently (run_schedules). Where lists differ the whole
/// world is run.
std::vector<std::string> check_schedules(const std::vector<const PipelineSchedule*>& ranks, const MeshLayout& layout,
                                         const PipelineShape& shape);

}  // namespace espalier
