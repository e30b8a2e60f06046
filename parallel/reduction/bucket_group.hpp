// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/collectives/communicator.hpp"
#include "parallel/reduction/reduction_plan.hpp"

namespace espalier {

/// The buckets that a communicator carries, and duplicates of it that carry nothing else.
struct BucketGroup {
  /// Collective over `ranks`. Of `all_buckets`, which outlive it, those of group `its_key`.
  /// @param what is carried: for the communicator's name
  /// @param work stream of the kernels, beside which the group has its own on a device
  /// @param to_gather_sums see gathers_sums
  BucketGroup(const Communicator& ranks, const std::string& what, const GroupKey& its_key,
              const std::vector<Bucket>& all_buckets, const ExecSpace& work, bool to_gather_sums);

  /// Ranks that cut differently would add unlike elements, or wait for ever. Collective.
  /// @throws Error (usage) where a rank has other buckets, or other values of `settings`
  void require_same_buckets(const std::vector<Index>& settings) const;

  /// Of the all_gathers.
  const Communicator& gather_communicator() const { return own_of_gathers ? *own_of_gathers : communicator; }
  Traffic traffic() const;

  GroupKey key;
  Communicator communicator;
  /// Where the MPI library carries the collectives, all_gathers of sums have a communicator of their own. Each rank
  /// interleaves them with the all_to_alls in another way, and MPI requires one order for each communicator. Each kind
  /// starts in the order of the buckets.
  std::optional<Communicator> own_of_gathers;
  ExecSpace exec;  ///< of kernels and messages
  std::vector<const Bucket*> buckets;
  bool gathers_sums;          ///< after its slices are summed; else each rank keeps its own
  bool spans_stages = false;  ///< values are stamped, to tell waiting for another stage's work from communication
};

}  // namespace espalier
