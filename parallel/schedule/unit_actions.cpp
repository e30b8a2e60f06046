// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/unit_actions.hpp"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "core/error.hpp"

namespace espalier {
int unit_at(const std::vector<Index>& layers_of_chunk, int chunk, int position) {
  const auto own = layers_of_chunk.begin() + chunk;
  if (position < 1 || position > *own)
    return -1;
  return static_cast<int>(std::accumulate(layers_of_chunk.begin(), own, Index{0})) + position - 1;
}

int direction(OperationKind kind) { return kind == OperationKind::forward ? 1 : -1; }

int first_layer(const std::vector<Index>& layers_of_chunk, OperationKind kind, int chunk) {
  return kind == OperationKind::forward ? 1 : static_cast<int>(layers_of_chunk[static_cast<std::size_t>(chunk)]);
}

bool writes_gradients(OperationKind kind) {
  return kind == OperationKind::backward || kind == OperationKind::backward_weight;
}

std::vector<UnitPass> unit_passes(const PipelineSchedule& schedule, const std::vector<Index>& layers_of_chunk) {
  std::vector<UnitPass> passes;
  for (const Operation& operation : schedule) {
    const bool writes = writes_gradients(operation.kind);
    if (!writes && operation.kind != OperationKind::forward && operation.kind != OperationKind::backward_input)
      continue;
    int position = first_layer(layers_of_chunk, operation.kind, operation.chunk);
    for (int unit; (unit = unit_at(layers_of_chunk, operation.chunk, position)) >= 0;
         position += direction(operation.kind))
      passes.push_back({unit, writes});
  }
  return passes;
}

std::map<int, int> writes_of_units(const std::vector<UnitPass>& passes) {
  std::map<int, int> writes;
  for (const UnitPass& pass : passes)
    writes[pass.unit] += pass.writes ? 1 : 0;
  return writes;
}

std::string text(const UnitAction& action) {
  using Kind = UnitAction::Kind;
  const char* kind = "gather";
  switch (action.kind) {
    case Kind::gather: break;
    case Kind::wait_for_weights: kind = "wait_for_weights"; break;
    case Kind::wait_for_buffer: kind = "wait_for_buffer"; break;
    case Kind::release: kind = "release"; break;
    case Kind::reduce: kind = action.is_last ? "last reduce" : "reduce"; break;
  }
  return fmt::format("{} {}", kind, action.unit);
}

std::vector<UnitAction> unit_actions(const std::vector<UnitPass>& passes, UnitBuffers buffers) {
  using Kind = UnitAction::Kind;
  std::vector<UnitAction> actions;
  std::vector<int> held(static_cast<std::size_t>(buffers.weights), -1);
  const auto gather = [&](int unit) {
    int& in_buffer = held[static_cast<std::size_t>(unit % buffers.weights)];
    if (in_buffer != unit)
      actions.push_back({Kind::gather, unit});
    in_buffer = unit;
  };
  std::map<int, int> writes_left = writes_of_units(passes);
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const int unit = passes[i].unit;
    if (buffers.weights > 0) {
      gather(unit);
      actions.push_back({Kind::wait_for_weights, unit});
      if (i + 1 < passes.size() && passes[i + 1].unit % buffers.weights != unit % buffers.weights)
        gather(passes[i + 1].unit);
    }
    const bool reduces = buffers.gradients > 0 && passes[i].writes;
    if (reduces)
      actions.push_back({Kind::wait_for_buffer, unit});
    if (buffers.weights > 0)
      actions.push_back({Kind::release, unit});
    if (reduces)
      actions.push_back({Kind::reduce, unit, --writes_left[unit] == 0});
  }
  return actions;
}

std::vector<int> times_of_units(const std::vector<UnitAction>& actions, UnitAction::Kind kind, int num_units) {
  std::vector<int> times(static_cast<std::size_t>(num_units), 0);
  for (const UnitAction& action : actions)
    if (action.kind == kind)
      ++times[static_cast<std::size_t>(action.unit)];
  return times;
}

UnitList unit_list(const PipelineSchedule& schedule, const std::vector<Index>& layers_of_chunk, UnitBuffers buffers) {
  return {layers_of_chunk, buffers, unit_actions(unit_passes(schedule, layers_of_chunk), buffers)};
}

UnitActionRunner::UnitActionRunner(const UnitList& list, std::function<void(const UnitAction&)> perform)
    : actions_(list.actions), buffers_(list.buffers), perform_(std::move(perform)) {
  leave();
}

void UnitActionRunner::enter(const UnitPass& pass) {
  using Kind = UnitAction::Kind;
  const auto require = [&](Kind kind) {
    ESPALIER_ASSERT(next_is(kind) && actions_[next_].unit == pass.unit,
                    fmt::format("the next action is {}, and unit {} is computed",
                                next_ < actions_.size() ? text(actions_[next_]) : "none", pass.unit));
    perform_next();
  };
  if (buffers_.weights > 0)
    require(Kind::wait_for_weights);
  while (next_is(Kind::gather))
    perform_next();
  if (buffers_.gradients > 0 && pass.writes)
    require(Kind::wait_for_buffer);
}

void UnitActionRunner::leave() {
  using Kind = UnitAction::Kind;
  while (next_is(Kind::release) || next_is(Kind::reduce) || next_is(Kind::gather))
    perform_next();
}

}  // namespace espalier
