// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh/reduction_groups.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

ReductionCommunicators ReductionCommunicators::all(const Communicator& communicator) {
  ReductionCommunicators communicators;
  for (const GroupKey& key : reduction_groups)
    communicators.entries.push_back({.key = key, .communicator = &communicator});
  return communicators;
}

const ReductionCommunicators::Entry& ReductionCommunicators::operator[](const GroupKey& key) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  ESPALIER_ASSERT(found != entries.end(), "espalier::ReductionCommunicators: no communicator for " + to_string(key));
  return *found;
}

GroupRanks ReductionCommunicators::ranks() const {
  GroupRanks ranks;
  for (const Entry& entry : entries) {
    const auto first = std::find_if(entries.begin(), entries.end(), [&](const Entry& other) {
      return other.communicator->state() == entry.communicator->state();
    });
    ranks[entry.key] = {.rank = entry.communicator->rank(),
                        .size = entry.communicator->size(),
                        .is_hybrid_sharded = entry.is_hybrid_sharded(),
                        .communicator_key = first->key};
    if (entry.second_level != nullptr) {
      ranks[entry.key].second_rank = entry.second_level->rank();
      ranks[entry.key].second_size = entry.second_level->size();
    }
  }
  return ranks;
}

}  // namespace espalier
