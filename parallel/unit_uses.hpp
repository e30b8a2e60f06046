// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/scalars.hpp"
#include "parallel/pipeline_schedule.hpp"

// Which layers a list of operations uses, and when: what ZeRO-3 gathers. Pure.

namespace espalier {

/// The unit (ReductionPlan::units) of the layer at a position of a chunk; -1 for the embedding and the head.
int unit_at(const std::vector<Index>& layers_of_chunk, int chunk, int position);

/// Whether the operation runs through the layers of its chunk.
bool uses_layers(OperationKind kind);

/// Of an operation that does: the position of its first layer, and the way it goes, 1 or -1.
int first_layer(const std::vector<Index>& layers_of_chunk, OperationKind kind, int chunk);
int direction(OperationKind kind);

/// The units in the order in which the list uses them.
std::vector<int> unit_uses(const PipelineSchedule& schedule, const std::vector<Index>& layers_of_chunk);

/// How often each unit is gathered where `buffers` of them exist at a time.
std::vector<int> gathers_of_units(const std::vector<int>& uses, int num_units, int buffers);

}  // namespace espalier
