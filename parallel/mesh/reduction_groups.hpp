// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <vector>

#include "core/group_key.hpp"

namespace espalier {

class Communicator;

/// The groups over which the gradients of a stage are summed, in the order in which all ranks create them. (There may
/// be more: MeshLayout::groups().) A tied tensor is cut over tp, so its gradient is never summed over tp.
inline constexpr std::array<GroupKey, 3> reduction_groups{
    GroupKey{},
    {.axes = AxisSet{Axis::tp} | token_axes},
    {.tied = true},
};

/// Our rank among those over which a group is summed. The sum may have a second level: over the ranks that hold the
/// same slice in other groups of the first. With hybrid sharding (MeshLayout::shard_replicas) the first level is a
/// shard group and the second a replicate group, whose ranks all keep that slice. In a sum over many replicas
/// (MeshLayout::first_level_replicas) each keeps a slice of it: the state is sharded over all.
struct GroupRank {
  int rank = 0;
  int size = 1;
  int second_rank = 0;
  int second_size = 1;
  bool is_hybrid_sharded = false;
  /// The group whose communicator this one uses: another one where both have the same ranks (dp, mostly). Such groups
  /// are reduced together.
  GroupKey communicator_key = {};

  /// Is the state sharded over the ranks of both levels?
  bool is_sharded_over_both_levels() const { return second_size > 1 && !is_hybrid_sharded; }
};
using GroupRanks = std::map<GroupKey, GroupRank>;

/// Over which communicator each group is summed; groups with the same ranks name the same communicator.
struct ReductionCommunicators {
  struct Entry {
    GroupKey key;
    const Communicator* communicator;
    const Communicator* second_level = nullptr;  ///< of the sum; nullptr: it has one level
    /// All ranks of both levels, where the state is sharded over both: those that share a slice of the first level are
    /// neighbours. nullptr: the state is sharded over `communicator`.
    const Communicator* both_levels = nullptr;

    bool is_hybrid_sharded() const { return second_level != nullptr && both_levels == nullptr; }
  };
  std::vector<Entry> entries;  ///< in the order of reduction_groups

  /// Every group over one communicator: plain data parallelism.
  static ReductionCommunicators all(const Communicator& communicator);
  const Entry& operator[](const GroupKey& key) const;
  GroupRanks ranks() const;
};

}  // namespace espalier
