// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/reduction/reduction_plan.hpp"

namespace espalier {

/// What one rank has of a plan.
struct ReductionShare {
  Index owned = 0;                 ///< elements that it sums, and those that are not reduced
  Index owned_in_units = 0;        ///< of them
  std::uint64_t buffer_bytes = 0;  ///< receive buffers, and buffers of the wire type
};

/// The shares of ranks with equal flat arrays, as plan_reduction() cuts them: each without the slices of all others.
/// With ReducerOptions::layer_times, for all layers.
class ReductionShares {
 public:
  /// @param parameters in flat order; they must outlive this.
  /// @param ranks of any of the ranks
  ReductionShares(const std::vector<Segment>& segments, const std::vector<Parameter>& parameters,
                  const GroupRanks& ranks, const ReducerOptions& options, Index gradient_bytes);

  std::size_t num_buckets() const { return flat_.buckets.size(); }
  ReductionShare of(const GroupRanks& ranks) const;

 private:
  ReducerOptions options_;
  Index gradient_bytes_;
  Index flat_size_;
  FlatRows rows_;
  FlatBuckets flat_;
};

}  // namespace espalier
