// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/emulated_network.hpp"

namespace espalier {
namespace {

EmulatedLinks emulated_links(const RunConfig::Emulate& emulate) {
  EmulatedLinks links{.within_node = {emulate.latency, emulate.bandwidth},
                      .between_nodes = {emulate.node_latency, emulate.node_bandwidth},
                      .ranks_per_node = static_cast<int>(emulate.ranks_per_node),
                      .message_scale = emulate.message_scale};
  if (!emulate.delayed_link.empty())
    links.delayed = {static_cast<int>(emulate.delayed_link[0]), static_cast<int>(emulate.delayed_link[1]),
                     emulate.delay};
  return links;
}

double reduction_scale(const RunConfig::Emulate& emulate, const GroupKey& group) {
  return has_message_scale(group) ? emulate.data_message_scale : 1;
}

}  // namespace

bool has_message_scale(const GroupKey& group) { return !group.axes.contains(Axis::tp); }

double message_scale(const RunConfig::Emulate& emulate, Axis axis) {
  switch (axis) {
    case Axis::tp: return emulate.message_scale * emulate.tensor_message_scale;
    case Axis::dp: return emulate.message_scale * emulate.data_message_scale;
    case Axis::pp: break;
  }
  return emulate.message_scale * emulate.pipeline_message_scale;
}

double message_scale(const RunConfig::Emulate& emulate, const GroupKey& group) {
  return emulate.message_scale * reduction_scale(emulate, group);
}

void emulate_network(const RunConfig::Emulate& emulate, const ProcessMesh& mesh) {
  mesh.world().set_emulated_links(emulated_links(emulate));
  for (const GroupKey& group : mesh.layout().groups())
    if (mesh.layout().group_rank(mesh.world().rank(), group).joins == group)
      mesh.reduction(group).set_message_scale(reduction_scale(emulate, group));
  mesh.tp().set_message_scale(emulate.tensor_message_scale);
  mesh.pp().set_message_scale(emulate.pipeline_message_scale);
}

}  // namespace espalier
