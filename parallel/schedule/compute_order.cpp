// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/compute_order.hpp"

#include <algorithm>

#include "core/error.hpp"

// p stages, m micro-batches, v chunks a stage. F = forward, B = backward, Bi and W = its input and its weight part.

namespace espalier {
namespace {

/// Micro-batches [first, last), chunk by chunk: all of them through chunk 0, then all through chunk 1, and so on.
void append_forwards(PipelineSchedule& list, int chunks, int first, int last) {
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (int microbatch = first; microbatch < last; ++microbatch)
      list.push_back({.kind = OperationKind::forward, .chunk = chunk, .microbatch = microbatch});
}

/// The way back: last chunk first, the micro-batches of a chunk in the order of their forwards.
void append_backwards(PipelineSchedule& list, int chunks, int first, int last) {
  for (int chunk = chunks - 1; chunk >= 0; --chunk)
    for (int microbatch = first; microbatch < last; ++microbatch)
      list.push_back({.kind = OperationKind::backward, .chunk = chunk, .microbatch = microbatch});
}

/// `warm_up` forwards, then a forward and a backward in turn (1F1B), then the backwards that are left.
PipelineSchedule weave(const PipelineSchedule& forwards, const PipelineSchedule& backwards, int warm_up) {
  PipelineSchedule list;
  auto backward = backwards.begin();
  for (const Operation& forward : forwards) {
    list.push_back(forward);
    if (--warm_up < 0)
      list.push_back(*backward++);
  }
  list.insert(list.end(), backward, backwards.end());
  return list;
}

/// A micro-batch goes through all stages and back before the next one starts: F0 B0 F1 B1 ...
PipelineSchedule sequential(const PipelineShape& shape) {
  PipelineSchedule list;
  for (int microbatch = 0; microbatch < shape.microbatches; ++microbatch) {
    append_forwards(list, shape.chunks, microbatch, microbatch + 1);
    append_backwards(list, shape.chunks, microbatch, microbatch + 1);
  }
  return list;
}

/// Huang et al., GPipe (2019): F0 ... Fm-1 B0 ... Bm-1. (The paper goes back from the last micro-batch to the first;
/// the bubble is the same, and so our bits are those of the other schedules.)
PipelineSchedule gpipe(const PipelineShape& shape) {
  PipelineSchedule list;
  append_forwards(list, shape.chunks, 0, shape.microbatches);
  append_backwards(list, shape.chunks, 0, shape.microbatches);
  return list;
}

/// Narayanan et al., PipeDream-2BW and Megatron-LM (2021): at most p - stage micro-batches are in flight.
PipelineSchedule one_f_one_b(const PipelineShape& shape, int stage) {
  PipelineSchedule forwards;
  PipelineSchedule backwards;
  append_forwards(forwards, 1, 0, shape.microbatches);
  append_backwards(backwards, 1, 0, shape.microbatches);
  return weave(forwards, backwards, warm_up_forwards(shape, stage));
}

/// Groups of micro-batches of interleaved().
int num_groups(const PipelineShape& shape) { return std::max(1, shape.microbatches / shape.stages); }

/// Narayanan et al. (2021), section 2.2: groups of p micro-batches, each through chunk 0, then through chunk 1, and so
/// on: when the last stage has done chunk 0 of the first one, the first stage has just finished with the group. The
/// paper wants p to divide m. Here the groups are as equal as can be and hold p or more (fewer only where m < p),
/// larger ones first: then no later group makes a stage wait for a forward that comes after the backward it feeds.
PipelineSchedule interleaved(const PipelineShape& shape, int stage) {
  const int groups = num_groups(shape);
  const int smaller = shape.microbatches / groups;
  const int num_larger = shape.microbatches % groups;
  PipelineSchedule forwards;
  PipelineSchedule backwards;
  for (int group = 0, first = 0; group < groups; ++group) {
    const int last = first + smaller + (group < num_larger ? 1 : 0);
    append_forwards(forwards, shape.chunks, first, last);
    append_backwards(backwards, shape.chunks, first, last);
    first = last;
  }
  return weave(forwards, backwards, warm_up_forwards(shape, stage));
}

/// Qi et al., Zero Bubble Pipeline Parallelism (2023), ZB-H1: the order of 1F1B, but the stage before waits for Bi
/// alone. Stage s keeps s weight parts back, as many as it has free activation slots against the first stage of 1F1B
/// ((p - s) + s = p), and does them at the end, when 1F1B would wait.
PipelineSchedule zero_bubble(const PipelineShape& shape, int stage) {
  PipelineSchedule list;
  int next_weight = 0;
  const auto append_weights = [&](int end) {
    for (; next_weight < end; ++next_weight)
      list.push_back({.kind = OperationKind::backward_weight, .microbatch = next_weight});
  };
  for (Operation operation : one_f_one_b(shape, stage)) {
    const bool is_backward = operation.kind == OperationKind::backward;
    if (is_backward)
      operation.kind = OperationKind::backward_input;
    list.push_back(operation);
    if (is_backward)
      append_weights(operation.microbatch + 1 - stage);
  }
  append_weights(shape.microbatches);
  return list;
}

}  // namespace

int warm_up_forwards(const PipelineShape& shape, int stage) {
  const int behind = shape.stages - stage - 1;
  if (shape.chunks == 1)
    return behind;
  // The first backward is the last chunk's: all chunks but one are forward first. Then twice the way to the last stage.
  const int largest = (shape.microbatches + num_groups(shape) - 1) / num_groups(shape);
  return (shape.chunks - 1) * largest + 2 * behind;
}

PipelineSchedule compute_order(const PipelineShape& shape, int stage) {
  switch (shape.kind) {
    case ScheduleKind::sequential: return sequential(shape);
    case ScheduleKind::gpipe: return gpipe(shape);
    case ScheduleKind::one_f_one_b: return one_f_one_b(shape, stage);
    case ScheduleKind::interleaved: return shape.chunks == 1 ? one_f_one_b(shape, stage) : interleaved(shape, stage);
    case ScheduleKind::zero_bubble: return zero_bubble(shape, stage);
    case ScheduleKind::zero_bubble_2p:
    case ScheduleKind::zero_bubble_v: break;
  }
  ESPALIER_ASSERT(has_list(shape.kind), "no list of operations is made of a schedule that only the planner knows");
  return {};
}

}  // namespace espalier
