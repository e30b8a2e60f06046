// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/pipeline_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "parallel/schedule/compute_order.hpp"

namespace espalier {
namespace {

constexpr const char* weight_letter = "W";

/// Marks the last operation that adds to the gradients of each chunk.
void mark_final_gradients(PipelineSchedule& list, int chunks) {
  std::vector<bool> marked(static_cast<std::size_t>(chunks), false);
  for (auto operation = list.rbegin(); operation != list.rend(); ++operation) {
    const bool adds = operation->kind == OperationKind::backward || operation->kind == OperationKind::backward_weight;
    const auto chunk = static_cast<std::size_t>(operation->chunk);
    if (adds && !marked[chunk])
      operation->reduces = marked[chunk] = true;
  }
}

/// The operation between the messages that it needs and makes. Activations go from part to part of the model, gradients
/// the other way; the parts before and after lie on the stages before and after, cyclically.
void append_with_messages(PipelineSchedule& list, const Operation& operation, const PipelineShape& shape, int stage) {
  const int part = part_of_chunk(stage, operation.chunk, shape.stages);
  const bool has_before = part > 0;
  const bool has_after = part + 1 < shape.stages * shape.chunks;
  const int before = (stage + shape.stages - 1) % shape.stages;
  const int after = (stage + 1) % shape.stages;
  const auto message = [&](bool exists, OperationKind kind, int peer) {
    if (exists)
      list.push_back({.kind = kind, .chunk = operation.chunk, .microbatch = operation.microbatch, .peer = peer});
  };
  const bool forward = operation.kind == OperationKind::forward;
  const bool backward = operation.kind == OperationKind::backward || operation.kind == OperationKind::backward_input;
  message(forward && has_before, OperationKind::receive_activations, before);
  message(backward && has_after, OperationKind::receive_gradients, after);
  list.push_back(operation);
  message(forward && has_after, OperationKind::send_activations, after);
  message(backward && has_before, OperationKind::send_gradients, before);
}

/// What follows the last backward.
void append_update(PipelineSchedule& list, const PipelineShape& shape, int stage) {
  for (int chunk = shape.chunks - 1; chunk >= 0; --chunk)
    list.push_back({.kind = OperationKind::reduce, .chunk = chunk, .microbatch = -1});
  if (shape.ties(stage))
    list.push_back({.kind = OperationKind::tied_reduce, .microbatch = -1});
  list.push_back({.kind = OperationKind::optimizer, .microbatch = -1});
  if (shape.gathers_weights)
    list.push_back({.kind = OperationKind::gather_weights, .microbatch = -1});
}

/// The most that `begins` is ahead of `ends` (or `or_ends`) in the list, among the operations of `chunk`.
int max_open(const PipelineSchedule& schedule, std::optional<int> chunk, OperationKind begins, OperationKind ends,
             OperationKind or_ends) {
  int open = 0;
  int most = 0;
  for (const Operation& operation : schedule) {
    if (chunk && operation.chunk != *chunk)
      continue;
    if (operation.kind == begins)
      most = std::max(most, ++open);
    else if (operation.kind == ends || operation.kind == or_ends)
      --open;
  }
  return most;
}

}  // namespace

const char* to_string(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::sequential: return "sequential";
    case ScheduleKind::gpipe: return "gpipe";
    case ScheduleKind::one_f_one_b: return "1f1b";
    case ScheduleKind::interleaved: return "interleaved";
    case ScheduleKind::zero_bubble: return "zero_bubble";
    case ScheduleKind::zero_bubble_2p: return "zero_bubble_2p";
    case ScheduleKind::zero_bubble_v: return "zero_bubble_v";
  }
  return "unknown";
}

const std::vector<ScheduleKind>& all_schedule_kinds() {
  static const std::vector<ScheduleKind> kinds{
      ScheduleKind::sequential,  ScheduleKind::gpipe,          ScheduleKind::one_f_one_b,  ScheduleKind::interleaved,
      ScheduleKind::zero_bubble, ScheduleKind::zero_bubble_2p, ScheduleKind::zero_bubble_v};
  return kinds;
}

const std::vector<ScheduleKind>& schedule_kinds_with_lists() {
  static const std::vector<ScheduleKind> kinds = [] {
    std::vector<ScheduleKind> listed = all_schedule_kinds();
    std::erase_if(listed, [](ScheduleKind kind) { return !has_list(kind); });
    return listed;
  }();
  return kinds;
}

bool has_list(ScheduleKind kind) { return kind != ScheduleKind::zero_bubble_2p && kind != ScheduleKind::zero_bubble_v; }

std::optional<ScheduleKind> parse_schedule_kind(std::string_view name) {
  for (const ScheduleKind kind : all_schedule_kinds())
    if (name == to_string(kind))
      return kind;
  return std::nullopt;
}

ChunkCounts allowed_chunks(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::zero_bubble:
    case ScheduleKind::zero_bubble_2p: return {.least = 1, .most = 1};
    case ScheduleKind::zero_bubble_v: return {.least = 2, .most = 2};
    case ScheduleKind::interleaved: return {.least = 2, .most = std::numeric_limits<int>::max()};
    case ScheduleKind::sequential:
    case ScheduleKind::gpipe: break;
  }
  return {.least = 1, .most = std::numeric_limits<int>::max()};
}

const char* to_string(OperationKind kind) {
  switch (kind) {
    case OperationKind::forward: return "forward";
    case OperationKind::backward: return "backward";
    case OperationKind::backward_input: return "backward_input";
    case OperationKind::backward_weight: return "backward_weight";
    case OperationKind::send_activations: return "send_activations";
    case OperationKind::receive_activations: return "receive_activations";
    case OperationKind::send_gradients: return "send_gradients";
    case OperationKind::receive_gradients: return "receive_gradients";
    case OperationKind::reduce: return "reduce";
    case OperationKind::tied_reduce: return "tied_reduce";
    case OperationKind::optimizer: return "optimizer";
    case OperationKind::gather_weights: return "gather_weights";
  }
  return "unknown";
}

bool is_compute(OperationKind kind) {
  return kind == OperationKind::forward || kind == OperationKind::backward || kind == OperationKind::backward_input ||
         kind == OperationKind::backward_weight;
}

PipelineSchedule make_schedule(const PipelineShape& shape, int stage) {
  ESPALIER_ASSERT(shape.stages > 0 && shape.chunks > 0 && shape.microbatches > 0, "a schedule of nothing");
  ESPALIER_ASSERT(0 <= stage && stage < shape.stages, fmt::format("stage {} of {}", stage, shape.stages));
  ESPALIER_ASSERT(shape.stages == 1 || allowed_chunks(shape.kind).has(shape.chunks),
                  fmt::format("{} with {} chunks a stage", to_string(shape.kind), shape.chunks));
  PipelineSchedule compute = compute_order(shape, stage);
  mark_final_gradients(compute, shape.chunks);
  if (shape.stages == 1) {
    append_update(compute, shape, stage);
    return compute;
  }
  PipelineSchedule list;
  for (const Operation& operation : compute)
    append_with_messages(list, operation, shape, stage);
  append_update(list, shape, stage);
  return list;
}

std::vector<PipelineSchedule> make_schedules(const PipelineShape& shape) {
  std::vector<PipelineSchedule> stages;
  stages.reserve(static_cast<std::size_t>(shape.stages));
  for (int stage = 0; stage < shape.stages; ++stage)
    stages.push_back(make_schedule(shape, stage));
  return stages;
}

int slots_needed(const PipelineSchedule& schedule, std::optional<int> chunk) {
  return max_open(schedule, chunk, OperationKind::forward, OperationKind::backward, OperationKind::backward_weight);
}

int pending_weights_needed(const PipelineSchedule& schedule, int chunk) {
  return max_open(schedule, chunk, OperationKind::backward_input, OperationKind::backward_weight,
                  OperationKind::backward_weight);
}

bool is_weight_text(std::string_view text) { return text.starts_with(weight_letter); }

std::string text(const Operation& operation, bool several_chunks) {
  const std::string label = several_chunks ? fmt::format("{}.{}", operation.microbatch, operation.chunk)
                                           : fmt::format("{}", operation.microbatch);
  switch (operation.kind) {
    case OperationKind::forward: return "F" + label;
    case OperationKind::backward: return "B" + label;
    case OperationKind::backward_input: return "Bi" + label;
    case OperationKind::backward_weight: return weight_letter + label;
    case OperationKind::send_activations: return fmt::format("send F{} to stage {}", label, operation.peer);
    case OperationKind::receive_activations: return fmt::format("recv F{} from stage {}", label, operation.peer);
    case OperationKind::send_gradients: return fmt::format("send B{} to stage {}", label, operation.peer);
    case OperationKind::receive_gradients: return fmt::format("recv B{} from stage {}", label, operation.peer);
    case OperationKind::reduce:
      return several_chunks ? fmt::format("reduce chunk {}", operation.chunk) : std::string("reduce");
    case OperationKind::tied_reduce:
    case OperationKind::optimizer:
    case OperationKind::gather_weights: break;
  }
  return to_string(operation.kind);
}

}  // namespace espalier
