// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "parallel/collectives/communicator.hpp"
#include "parallel/mesh/mesh_layout.hpp"

namespace espalier {

/// A layout with a communicator an axis, named "tp", "dp", "pp" ("cp" and "ep" where there are several such ranks), and
/// one for each of its groups, "dp" where its ranks are those of dp, else "tp+dp" and "tied". Where sums have two
/// levels, these have the ranks of the first, and there is one of the second for each, "dp copies" (of the sharded
/// state) or "dp second level", and "dp whole" of both. All are created here, with the device links of tp and of pp.
class ProcessMesh {
 public:
  /// Collective over `world`, whose size must be the layout's.
  /// @param is_ring the last stage of a pipeline sends to the first, as chunks do. Then the edges between stages rest
  /// until the first step is done: CUDA loads kernels at their first use and may wait for the whole device, with NCCL's
  /// sends in it, which wait for their receivers. Without chunks every schedule gets through that, with them not all do
  /// (ScheduleCosts::computing_waits_for_sends).
  ProcessMesh(const Communicator& world, const MeshLayout& layout, bool is_ring = true);
  ProcessMesh(ProcessMesh&&) = default;
  ProcessMesh& operator=(ProcessMesh&&) = default;

  const Communicator& world() const { return *world_; }
  const Communicator& tp() const { return along(Axis::tp); }
  const Communicator& dp() const { return along(Axis::dp); }
  const Communicator& pp() const { return along(Axis::pp); }
  const Communicator& reduction(const GroupKey& key) const { return *reductions_[key].communicator; }
  const ReductionCommunicators& reductions() const { return reductions_; }
  /// From now on reductions() are these, whose communicators live as long as this mesh.
  void sum_gradients_over(ReductionCommunicators communicators) { reductions_ = std::move(communicators); }
  const Communicator& along(Axis axis) const { return axes_.at(axis); }
  const MeshLayout& layout() const { return layout_; }
  PerAxis coordinates() const { return layout_.coordinates(world_->rank()); }

 private:
  const Communicator* world_;
  MeshLayout layout_;
  std::map<Axis, Communicator> axes_;
  std::vector<Communicator> larger_groups_;  // reserved: reductions_ points into it
  ReductionCommunicators reductions_;
};

}  // namespace espalier
