// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/config/emulation.hpp"

#include "parallel/collectives/emulated_links.hpp"
#include "parallel/mesh/reduction_groups.hpp"

namespace espalier {
namespace {

double reduction_scale(const RunConfig::Emulate& emulate, const GroupKey& group) {
  return has_message_scale(group) ? emulate.data_message_scale : 1;
}

EmulatedLinks emulated_links(const RunConfig::Emulate& emulate) {
  EmulatedLinks links{.within_node = {emulate.latency, emulate.bandwidth},
                      .between_nodes = {emulate.node_latency, emulate.node_bandwidth},
                      .ranks_per_node = static_cast<int>(emulate.ranks_per_node),
                      .message_scale = emulate.message_scale,
                      .scales = {{to_string(Axis::tp), emulate.tensor_message_scale},
                                 {to_string(Axis::pp), emulate.pipeline_message_scale}}};
  for (const GroupKey& group : reduction_groups)
    links.scales[to_string(group)] = reduction_scale(emulate, group);
  if (!emulate.delayed_link.empty())
    links.delayed = {static_cast<int>(emulate.delayed_link[0]), static_cast<int>(emulate.delayed_link[1]),
                     emulate.delay};
  return links;
}

}  // namespace

double emulated_seconds(const RunConfig::Emulate& emulate, OperationKind kind, Index layers, int part) {
  const std::vector<Index>& percent = kind == OperationKind::forward || emulate.backward_percent.empty()
                                          ? emulate.part_percent
                                          : emulate.backward_percent;
  const double share = percent.empty() ? 1 : static_cast<double>(percent.at(static_cast<std::size_t>(part))) / 100;
  const double times = share * (emulate.per_layer ? static_cast<double>(layers) : 1);
  switch (kind) {
    case OperationKind::forward: return times * emulate.forward;
    case OperationKind::backward: return times * (emulate.backward_input + emulate.backward_weight);
    case OperationKind::backward_input: return times * emulate.backward_input;
    case OperationKind::backward_weight: return times * emulate.backward_weight;
    default: return 0;
  }
}

double slow_factor(const RunConfig::Emulate& emulate, int world_rank) {
  return world_rank == emulate.slow_rank ? emulate.slow_factor : 1;
}

bool has_message_scale(const GroupKey& group) { return !group.axes.contains(Axis::tp); }

double message_scale(const RunConfig::Emulate& emulate, Axis axis) {
  return emulate.message_scale * (axis == Axis::tp   ? emulate.tensor_message_scale
                                  : axis == Axis::dp ? emulate.data_message_scale
                                                     : emulate.pipeline_message_scale);
}

double message_scale(const RunConfig::Emulate& emulate, const GroupKey& group) {
  return emulate.message_scale * reduction_scale(emulate, group);
}

void emulate_network(const RunConfig::Emulate& emulate, const Communicator& world) {
  emulate_links(world, emulated_links(emulate));
}

}  // namespace espalier
