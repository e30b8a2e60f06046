// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// The forwards and backwards of a stage in the order of shape.kind, without messages and `reduces`, which
/// make_schedule adds. The five schedules differ in nothing else.
PipelineSchedule compute_order(const PipelineShape& shape, int stage);

/// 1f1b, zero_bubble and interleaved: the number of forwards before the first forward that a backward follows. With
/// fewer micro-batches than that, all forwards come first.
int warm_up_forwards(const PipelineShape& shape, int stage);

}  // namespace espalier
