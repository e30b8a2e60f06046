// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/process_mesh.hpp"

#include <fmt/format.h>

#include "parallel/messages.hpp"

namespace espalier {

ProcessMesh::ProcessMesh(const Communicator& world, const MeshLayout& layout, bool is_ring)
    : world_(&world), layout_(layout) {
  if (layout.size() != world.size())
    refuse_layout(world.size(), layout.degrees,
                  fmt::format("the layout is for {} ranks, but there are {}", layout.size(), world.size()));
  const PerAxis coordinates = layout.coordinates(world.rank());
  for (const Axis axis : {Axis::tp, Axis::dp, Axis::pp})
    axes_.push_back(world.split(layout.group_index(world.rank(), axis), coordinates[axis], to_string(axis)));
  reductions_.entries.push_back({GroupKey{}, &dp()});
  const std::vector<GroupKey> groups = layout.groups();
  larger_groups_.reserve(groups.size());
  for (const GroupKey& key : groups) {
    if (key == GroupKey{})
      continue;
    const GroupRank ours = layout.group_rank(world.rank(), key);
    if (ours.joins == key)
      larger_groups_.push_back(world.split(layout.reduction_ranks(world.rank(), key)[0], ours.rank, to_string(key)));
    reductions_.entries.push_back({key, ours.joins == key ? &larger_groups_.back() : &reductions_[ours.joins]});
  }
  tp().open_device_link();  // the reducer opens its own
  pp().open_device_edges(tags::activations, +1, is_ring);
  pp().open_device_edges(tags::gradients, -1, is_ring);
  pp().rest_device_edges(is_ring);
}

}  // namespace espalier
