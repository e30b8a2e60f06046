// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/unit_uses.hpp"

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

std::vector<int> gathers_of_units(const std::vector<int>& uses, int num_units, int buffers) {
  std::vector<int> gathers(static_cast<std::size_t>(num_units), 0);
  std::vector<int> held(static_cast<std::size_t>(buffers), -1);
  for (const int unit : uses) {
    int& in_buffer = held[static_cast<std::size_t>(unit % buffers)];
    if (in_buffer != unit)
      ++gathers[static_cast<std::size_t>(unit)];
    in_buffer = unit;
  }
  return gathers;
}

}  // namespace espalier
