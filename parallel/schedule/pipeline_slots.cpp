// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/pipeline_slots.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "parallel/schedule/compute_order.hpp"

namespace espalier {
namespace {

int slots_together(const PipelineShape& shape, int stage) {
  const int m = shape.microbatches;
  switch (shape.kind) {
    case ScheduleKind::sequential: return shape.chunks;
    case ScheduleKind::gpipe: return m * shape.chunks;
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::interleaved: return std::min(m * shape.chunks, warm_up_forwards(shape, stage) + 1);
    case ScheduleKind::zero_bubble: return std::min(m, shape.stages);  // weight parts kept back fill what 1F1B has free
    case ScheduleKind::zero_bubble_2p: return std::min(m, 2 * shape.stages - 1);
    case ScheduleKind::zero_bubble_v: return std::min(m, shape.stages) * shape.chunks;
  }
  return m;
}

// Forward takes p micro-batches through one chunk after the other, backward the same from the last chunk on: of the
// first n passes so many are of the chunk that is `offset` passes after the first of a round.
std::vector<int> interleaved_slots(const PipelineShape& shape, int stage) {
  const int p = shape.stages;
  const int round = p * shape.chunks;
  const auto passes = [&](int n, int offset) { return n / round * p + std::clamp(n % round - offset, 0, p); };
  const int ahead = warm_up_forwards(shape, stage) + 1;  // forward passes before the first backward
  std::vector<int> slots;
  for (int chunk = 0; chunk < shape.chunks; ++chunk) {
    const int forward_offset = chunk * p;
    const int backward_offset = (shape.chunks - 1 - chunk) * p;
    // Most are held when a run of forwards ends, or just before backwards begin.
    const int run_ends = ((forward_offset + p - ahead) % round + round) % round;
    int most = 0;
    for (const int done : {0, backward_offset, run_ends})
      most = std::max(
          most, std::min(passes(ahead + done, forward_offset), shape.microbatches) - passes(done, backward_offset));
    slots.push_back(most);
  }
  return slots;
}

// Stages that do not divide the micro-batches make groups of two sizes (compute_order.cpp): p + 1, then p. Then the
// list is asked: one of few groups of each size, as what a stage holds repeats from group to group.
PipelineSlots slots_of_list(PipelineShape shape, int stage) {
  const int enough = 3 + shape.chunks;
  const int num_groups = shape.microbatches / shape.stages;
  const int num_larger = shape.microbatches % shape.stages;
  if (num_larger < num_groups) {
    const int larger = std::min(num_larger, enough);
    const int smaller = std::min(num_groups - num_larger, enough);
    shape.microbatches = (larger + smaller) * shape.stages + larger;
  }
  thread_local std::map<std::array<int, 4>, PipelineSlots> known;  // a search asks for the same again and again
  const auto [entry, is_new] = known.try_emplace({shape.stages, shape.chunks, shape.microbatches, stage});
  PipelineSlots& slots = entry->second;
  if (is_new) {
    const PipelineSchedule list = make_schedule(shape, stage);
    slots.together = slots_needed(list);
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      slots.chunks.push_back(slots_needed(list, chunk));
  }
  return slots;
}

}  // namespace

PipelineSlots pipeline_slots(const PipelineShape& shape, int stage) {
  if (shape.kind == ScheduleKind::interleaved && shape.chunks > 1 && shape.microbatches % shape.stages != 0)
    return slots_of_list(shape, stage);
  PipelineSlots slots{.chunks = {}, .together = slots_together(shape, stage)};
  if (shape.kind == ScheduleKind::interleaved)
    slots.chunks = interleaved_slots(shape, stage);
  else
    slots.chunks.assign(static_cast<std::size_t>(shape.chunks), slots.together / shape.chunks);
  if (shape.kind == ScheduleKind::zero_bubble)
    slots.waiting_weights = std::min(shape.microbatches, stage + 1);
  return slots;
}

}  // namespace espalier
