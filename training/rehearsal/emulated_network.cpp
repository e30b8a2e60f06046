// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/rehearsal/emulated_network.hpp"

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
