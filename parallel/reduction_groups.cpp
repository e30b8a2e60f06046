// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction_groups.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "parallel/communicator.hpp"

namespace espalier {

ReductionCommunicators ReductionCommunicators::all(const Communicator& communicator) {
  ReductionCommunicators communicators;
  for (const GroupKey& key : reduction_groups)
    communicators.entries.push_back({key, &communicator});
  return communicators;
}

const Communicator& ReductionCommunicators::operator[](const GroupKey& key) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  ESPALIER_ASSERT(found != entries.end(), "espalier::ReductionCommunicators: no communicator for " + to_string(key));
  return *found->communicator;
}

GroupRanks ReductionCommunicators::ranks() const {
  GroupRanks ranks;
  for (const auto& [key, communicator] : entries) {
    const auto& state = communicator->state();
    const auto first = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& entry) { return entry.communicator->state() == state; });
    ranks[key] = {.rank = communicator->rank(), .size = communicator->size(), .joins = first->key};
  }
  return ranks;
}

}  // namespace espalier
