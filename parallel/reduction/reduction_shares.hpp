// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "parallel/reduction/reduction_plan.hpp"

namespace espalier {

/// What one rank has of a plan.
struct ReductionShare {
  Index owned = 0;                 ///< elements that it sums, and those that are reduced with nobody
  Index owned_in_units = 0;        ///< of them
  std::uint64_t buffer_bytes = 0;  ///< for what other ranks send, and for what leaves in a wire type
};

/// The shares of all ranks that cut the flat arrays alike (where sums have a second level: of its ranks) from the plan
/// of one of them. With ReducerOptions::layer_times, for all layers.
class ReductionShares {
 public:
  /// @param ranks of the plan
  ReductionShares(const ReductionPlan& plan, const GroupRanks& ranks, const ReducerOptions& options, Index flat_size,
                  Index gradient_bytes);

  ReductionShare of(const GroupRanks& ranks) const;

  /// The sum over the groups of the most that one of their ranks has; of a second level those of the plan's rank.
  ReductionShare most() const;

 private:
  // The buckets of a group; vectors by rank in it.
  struct Group {
    int size = 1;
    int count = 0;
    Index largest_bucket = 0;
    std::vector<Index> owned, owned_in_units, largest_slice;
  };
  static Group& group_of(std::map<GroupKey, Group>& groups, const GroupKey& key, int size);
  std::uint64_t buffer_bytes(const Group& group, Index largest_slice) const;
  template <class Choice>
  ReductionShare share(const Choice& choice) const;

  ReducerOptions options_;
  Index gradient_bytes_;
  Index alone_ = 0;  // reduced with nobody
  Index alone_in_units_ = 0;
  std::map<GroupKey, Group> groups_;
  std::map<GroupKey, Group> second_;  // level, where a sum has one
  bool has_copies_ = false;
};

}  // namespace espalier
