// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/collectives/communicator.hpp"
#include "parallel/reduction/reduction_plan.hpp"

namespace espalier {

/// The buckets of a communicator, and a duplicate of the communicator for them alone.
struct BucketGroup {
  /// Takes the buckets of group `its_key` from `all_buckets`, which outlive it. Collective over `ranks`.
  /// @param what the buckets hold: for the communicator's name
  /// @param work stream of the kernels; on a device the group has a stream of its own
  /// @param to_gather_sums see gathers_sums
  BucketGroup(const Communicator& ranks, const std::string& what, const GroupKey& its_key,
              const std::vector<Bucket>& all_buckets, const ExecSpace& work, bool to_gather_sums);

  /// Ranks with different buckets would add unlike elements, or hang. Collective.
  /// @throws Error (usage) where a rank has other buckets, or other values of `settings`
  void require_same_buckets(const std::vector<Index>& settings) const;

  /// Of the all_gathers.
  const Communicator& gather_communicator() const { return sums_communicator ? *sums_communicator : communicator; }
  Traffic traffic() const;

  GroupKey key;
  Communicator communicator;
  /// Where the MPI library carries the collectives, all_gathers of sums have a communicator of their own. Each rank
  /// interleaves them with the all_to_alls in another way, and MPI requires one order for each communicator. Each kind
  /// starts in the order of the buckets.
  std::optional<Communicator> sums_communicator;
  ExecSpace exec;  ///< of kernels and messages
  std::vector<const Bucket*> buckets;
  bool gathers_sums;          ///< all_gather the summed slices; else each rank keeps its own
  bool spans_stages = false;  ///< messages have timestamps, which separate waiting for another stage from communication
};

}  // namespace espalier
