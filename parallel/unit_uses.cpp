// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/unit_uses.hpp"

#include <fmt/format.h>

#include <numeric>

namespace espalier {

int unit_at(const std::vector<Index>& layers_of_chunk, int chunk, int position) {
  const auto own = layers_of_chunk.begin() + chunk;
  if (position < 1 || position > *own)
    return -1;
  return static_cast<int>(std::accumulate(layers_of_chunk.begin(), own, Index{0})) + position - 1;
}

bool uses_layers(OperationKind kind) {
  return kind == OperationKind::forward || kind == OperationKind::backward || kind == OperationKind::backward_input ||
         kind == OperationKind::backward_weight;
}

int direction(OperationKind kind) { return kind == OperationKind::forward ? 1 : -1; }

int first_layer(const std::vector<Index>& layers_of_chunk, OperationKind kind, int chunk) {
  return kind == OperationKind::forward ? 1 : static_cast<int>(layers_of_chunk[static_cast<std::size_t>(chunk)]);
}

std::vector<int> unit_uses(const PipelineSchedule& schedule, const std::vector<Index>& layers_of_chunk) {
  std::vector<int> uses;
  for (const Operation& operation : schedule) {
    if (!uses_layers(operation.kind))
      continue;
    int position = first_layer(layers_of_chunk, operation.kind, operation.chunk);
    for (int unit; (unit = unit_at(layers_of_chunk, operation.chunk, position)) >= 0;
         position += direction(operation.kind))
      uses.push_back(unit);
  }
  return uses;
}

std::string text(const UnitAction& action) {
  const char* const kind = action.kind == UnitAction::Kind::gather ? "gather"
                           : action.kind == UnitAction::Kind::use  ? "use"
                                                                   : "release";
  return fmt::format("{} {}", kind, action.unit);
}

std::vector<UnitAction> unit_actions(const std::vector<int>& uses, int buffers) {
  std::vector<UnitAction> actions;
  std::vector<int> held(static_cast<std::size_t>(buffers), -1);
  const auto gather = [&](int unit) {
    int& in_buffer = held[static_cast<std::size_t>(unit % buffers)];
    if (in_buffer != unit)
      actions.push_back({UnitAction::Kind::gather, unit});
    in_buffer = unit;
  };
  for (std::size_t i = 0; i < uses.size(); ++i) {
    gather(uses[i]);
    actions.push_back({UnitAction::Kind::use, uses[i]});
    if (i + 1 < uses.size() && uses[i + 1] % buffers != uses[i] % buffers)
      gather(uses[i + 1]);
    actions.push_back({UnitAction::Kind::release, uses[i]});
  }
  return actions;
}

std::string check_unit_actions(const std::vector<UnitAction>& actions, const std::vector<int>& uses, int buffers) {
  struct Buffer {
    int unit = -1;
    bool in_use = false;
  };
  std::vector<Buffer> ring(static_cast<std::size_t>(buffers));
  std::size_t next_use = 0;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const UnitAction& action = actions[i];
    Buffer& buffer = ring[static_cast<std::size_t>(action.unit % buffers)];
    const auto problem = [&](const std::string& what) {
      return fmt::format("{} (action {}) {}", text(action), i, what);
    };
    switch (action.kind) {
      case UnitAction::Kind::gather:
        if (buffer.in_use)
          return problem(fmt::format("overwrites unit {}, which is in use", buffer.unit));
        buffer.unit = action.unit;
        break;
      case UnitAction::Kind::use:
        if (next_use == uses.size() || uses[next_use] != action.unit)
          return problem("is not the next use of the list");
        if (buffer.unit != action.unit)
          return problem(buffer.unit < 0 ? "comes before its gather"
                                         : fmt::format("finds unit {} in its buffer", buffer.unit));
        buffer.in_use = true;
        ++next_use;
        break;
      case UnitAction::Kind::release:
        if (!buffer.in_use || buffer.unit != action.unit)
          return problem("is of a unit that is not in use");
        buffer.in_use = false;
        break;
    }
  }
  return next_use == uses.size() ? "" : fmt::format("unit {} is not used at the end", uses[next_use]);
}

std::vector<int> gathers_of_units(const std::vector<UnitAction>& actions, int num_units) {
  std::vector<int> gathers(static_cast<std::size_t>(num_units), 0);
  for (const UnitAction& action : actions)
    if (action.kind == UnitAction::Kind::gather)
      ++gathers[static_cast<std::size_t>(action.unit)];
  return gathers;
}

}  // namespace espalier
