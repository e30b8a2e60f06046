// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "core/parameter_spec.hpp"

namespace espalier {

class Communicator;

inline constexpr std::array<ReductionGroup, num_reduction_groups> all_reduction_groups{
    ReductionGroup::replicas, ReductionGroup::replicas_and_tensor, ReductionGroup::tied};
const char* to_string(ReductionGroup group);

/// One thing a reduction group.
template <class X>
struct PerGroup {
  std::array<X, num_reduction_groups> values{};
  X& operator[](ReductionGroup group) { return values[static_cast<std::size_t>(group)]; }
  const X& operator[](ReductionGroup group) const { return values[static_cast<std::size_t>(group)]; }
};

/// Our place among the ranks over which a group is summed.
struct GroupPlace {
  int rank = 0;
  int size = 1;
  /// The group whose communicator this one uses: another one where both have the same ranks (replicas, mostly). Such
  /// groups are reduced together.
  ReductionGroup joins = ReductionGroup::replicas;
};

/// Over which communicator each group is summed; groups with the same ranks name the same communicator.
struct ReductionCommunicators {
  const Communicator* replicas;
  const Communicator* replicas_and_tensor;
  const Communicator* tied;

  /// Every group over one communicator: plain data parallelism.
  static ReductionCommunicators all(const Communicator& communicator) {
    return {&communicator, &communicator, &communicator};
  }
  const Communicator& operator[](ReductionGroup group) const;
  PerGroup<GroupPlace> places() const;
};

}  // namespace espalier
