// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "parallel/collectives/communicator.hpp"
#include "parallel/mesh/mesh_layout.hpp"

namespace espalier {

/// The communicators of a device mesh, with the device links of tp and of pp.
/// - One for each axis: "tp", "dp", "pp" ("cp" and "ep" if there are several such ranks)
/// - One for each reduction group: "dp" (that of the axis, if it has the same ranks), "tp+dp", "tied"
/// - With two levels of sums these have the ranks of the first level. The second level has "dp replicate" (hybrid
///   sharding) or "dp second level", and both together have "dp both levels".
class ProcessMesh {
 public:
  /// Collective over `world`, whose size must be the layout's.
  /// @param is_ring the last stage of a pipeline sends to the first, as with several chunks. Then MPI carries the
  /// messages between stages until the first step is done. CUDA loads kernels at their first use and may wait for the
  /// whole device. NCCL's sends in it wait for their receivers. With several chunks not every schedule gets through
  /// that (tests/parallel/test_schedule_check.cpp).
  ProcessMesh(const Communicator& world, const MeshLayout& layout, bool is_ring = true);
  ProcessMesh(ProcessMesh&&) = default;
  ProcessMesh& operator=(ProcessMesh&&) = default;

  const Communicator& world() const { return *world_; }
  const Communicator& tp() const { return along(Axis::tp); }
  const Communicator& dp() const { return along(Axis::dp); }
  const Communicator& pp() const { return along(Axis::pp); }
  const Communicator& reduction(const GroupKey& key) const { return *reductions_[key].communicator; }
  const ReductionCommunicators& reductions() const { return reductions_; }
  /// Replaces reductions(); the communicators must live as long as this mesh.
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
