// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction_groups.hpp"

#include "parallel/communicator.hpp"

namespace espalier {

const char* to_string(ReductionGroup group) {
  switch (group) {
    case ReductionGroup::tied: return "tied";
    case ReductionGroup::replicas: return "replicas";
    case ReductionGroup::replicas_and_tensor: return "replicas_and_tensor";
  }
  return "unknown";
}

const Communicator& ReductionCommunicators::operator[](ReductionGroup group) const {
  switch (group) {
    case ReductionGroup::tied: return *tied;
    case ReductionGroup::replicas_and_tensor: return *replicas_and_tensor;
    case ReductionGroup::replicas: break;
  }
  return *replicas;
}

PerGroup<GroupPlace> ReductionCommunicators::places() const {
  PerGroup<GroupPlace> places;
  for (const ReductionGroup group : all_reduction_groups) {
    const Communicator& communicator = (*this)[group];
    GroupPlace& place = places[group];
    place = {.rank = communicator.rank(), .size = communicator.size(), .joins = group};
    for (const ReductionGroup other : all_reduction_groups)
      if ((*this)[other].state() == communicator.state()) {
        place.joins = other;  // the first of them all
        break;
      }
  }
  return places;
}

}  // namespace espalier
