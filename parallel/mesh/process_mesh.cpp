// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh/process_mesh.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "parallel/collectives/messages.hpp"

namespace espalier {

ProcessMesh::ProcessMesh(const Communicator& world, const MeshLayout& layout, bool is_ring)
    : world_(&world), layout_(layout) {
  if (layout.size() != world.size())
    refuse_layout(world.size(), layout.degrees,
                  fmt::format("the layout is for {} ranks, but there are {}", layout.size(), world.size()));
  const PerAxis coordinates = layout.coordinates(world.rank());
  for (const Axis axis : all_axes)
    if (layout.degree(axis) > 1 || std::ranges::find(trained_axes, axis) != trained_axes.end())
      axes_.emplace(axis, world.split(layout.group_index(world.rank(), axis), coordinates[axis], to_string(axis)));
  const std::vector<GroupKey> groups = layout.groups();
  larger_groups_.reserve(3 * groups.size());
  const auto make_group = [&](const std::vector<int>& ranks, int ours, const std::string& name) {
    larger_groups_.push_back(world.split(ranks.front(), ours, name));
    return &larger_groups_.back();
  };
  for (const GroupKey& key : groups) {
    const GroupRank ours = layout.group_rank(world.rank(), key);
    if (ours.communicator_key != key) {
      reductions_.entries.push_back(reductions_[ours.communicator_key]);
      reductions_.entries.back().key = key;
      continue;
    }
    const bool is_dp = key == GroupKey{} && !layout.has_two_levels() && ours.size == dp().size();
    ReductionCommunicators::Entry entry{.key = key, .communicator = &dp()};
    if (!is_dp)
      entry.communicator = make_group(layout.first_level_ranks(world.rank(), key), ours.rank, to_string(key));
    if (layout.has_two_levels())
      entry.second_level = make_group(layout.second_level_ranks(world.rank(), key), ours.second_rank,
                                      to_string(key) + (ours.is_hybrid_sharded ? " replicate" : " second level"));
    if (ours.is_sharded_over_both_levels())
      entry.both_levels = make_group(layout.reduction_ranks(world.rank(), key),
                                     ours.rank * ours.second_size + ours.second_rank, to_string(key) + " both levels");
    reductions_.entries.push_back(entry);
  }
  tp().open_device_link();  // the reducer opens its own
  pp().open_device_edges(tags::activations, +1, is_ring);
  pp().open_device_edges(tags::gradients, -1, is_ring);
  // CUDA loads a kernel at its first use, and waits for the whole device there, where NCCL's sends wait for their
  // receivers. In a ring of stages that is a deadlock, so the messages of the first step go by MPI.
  pp().pause_device_edges(is_ring);
}

}  // namespace espalier
