// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// The forwards and backwards of a stage in the order of shape.kind, without messages and `reduces`, which
/// make_schedule adds. The five schedules differ in nothing else.
PipelineSchedule compute_order(const PipelineShape& shape, int stage);

/// 1f1b, zero_bubble and interleaved: how many forwards are done before the first forward with a backward right after
/// it, where there are as many micro-batches.
int warm_up_forwards(const PipelineShape& shape, int stage);

}  // namespace espalier
