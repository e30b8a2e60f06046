// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace espalier {

/// What a stage does next with one micro-batch.
enum class OperationKind { forward, backward };

struct Operation {
  OperationKind kind = OperationKind::forward;
  int chunk = 0;  ///< of the model on this rank
  int microbatch = 0;
  bool reduces = false;  ///< backward: gradients are final afterwards, their reduction starts inside
};

using PipelineSchedule = std::vector<Operation>;

/// One stage: forward and backward of each micro-batch in turn, F0 B0 F1 B1 ...; the gradients are reduced during the
/// last backward. One activation slot is enough. Pure.
PipelineSchedule single_stage_schedule(int num_microbatches);

/// How many micro-batches have been forward but not backward at once, at most: the activation slots a stage needs.
int slots_needed(const PipelineSchedule& schedule);

}  // namespace espalier
