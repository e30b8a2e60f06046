// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <vector>

#include "core/group_key.hpp"

namespace espalier {

class Communicator;

/// The groups over which the gradients of a stage are summed, in the order in which all ranks make them. A tied tensor
/// is cut over tp, never partial there. (With experts cut over ep there is one more: MeshLayout::groups().)
inline constexpr std::array<GroupKey, 3> reduction_groups{
    GroupKey{},
    {.axes = AxisSet{Axis::tp} | token_axes},
    {.tied = true},
};

/// Our rank among those over which a group is summed. The sum may have a second level: over the ranks that hold the
/// same slice in other groups of the first. With hybrid sharding (MeshLayout::shard_replicas) each of them then keeps
/// that slice: they hold copies of the sharded state. In a sum over many replicas (MeshLayout::first_level_replicas)
/// each keeps a slice of it: the state is sharded over all.
struct GroupRank {
  int rank = 0;
  int size = 1;
  int second_rank = 0;
  int second_size = 1;
  bool has_copies = false;
  /// The group whose communicator this one uses: another one where both have the same ranks (dp, mostly). Such groups
  /// are reduced together.
  GroupKey joins = {};
};
using GroupRanks = std::map<GroupKey, GroupRank>;

/// Over which communicator each group is summed; groups with the same ranks name the same communicator.
struct ReductionCommunicators {
  struct Entry {
    GroupKey key;
    const Communicator* communicator;
    const Communicator* second = nullptr;  ///< of the second level of the sum; nullptr: it has one level
    bool has_copies = false;               ///< GroupRank::has_copies
    /// All ranks of both levels, where the state is sharded over both: those that share a slice of the first level are
    /// neighbours. nullptr: they are those of `communicator`.
    const Communicator* whole = nullptr;
  };
  std::vector<Entry> entries;  ///< in the order of reduction_groups

  /// Every group over one communicator: plain data parallelism.
  static ReductionCommunicators all(const Communicator& communicator);
  const Entry& operator[](const GroupKey& key) const;
  GroupRanks ranks() const;
};

}  // namespace espalier
