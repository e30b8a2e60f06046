// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/process_mesh.hpp"

#include <fmt/format.h>

#include "parallel/messages.hpp"

namespace espalier {

ReductionCommunicators ProcessMesh::reductions() const {
  return {.replicas = &reduction(ReductionGroup::replicas),
          .replicas_and_tensor = &reduction(ReductionGroup::replicas_and_tensor),
          .tied = &reduction(ReductionGroup::tied)};
}

ProcessMesh::ProcessMesh(const Communicator& world, const MeshLayout& layout, bool is_ring)
    : world_(&world), layout_(layout) {
  if (layout.size() != world.size())
    refuse_layout(world.size(), layout.degrees,
                  fmt::format("the layout is for {} ranks, but there are {}", layout.size(), world.size()));
  const PerAxis place = layout.coordinates(world.rank());
  for (const Axis axis : {Axis::tp, Axis::dp, Axis::pp})
    axes_.push_back(world.split(layout.group_index(world.rank(), axis), place[axis], to_string(axis)));
  larger_groups_.reserve(num_reduction_groups);
  const PerGroup<GroupPlace> places = layout.reduction_places(world.rank());
  for (const ReductionGroup group : all_reduction_groups) {
    reductions_[group] = &dp();
    if (places[group].joins != group || group == ReductionGroup::replicas)
      continue;
    const int color = layout.reduction_ranks(world.rank(), group)[0];
    larger_groups_.push_back(world.split(color, places[group].rank, group == ReductionGroup::tied ? "tied" : "tp+dp"));
    reductions_[group] = &larger_groups_.back();
  }
  tp().open_device_link();  // the reducer opens its own
  pp().open_device_edges(tags::activations, +1, is_ring);
  pp().open_device_edges(tags::gradients, -1, is_ring);
  pp().rest_device_edges(is_ring);
}

}  // namespace espalier
