// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/reduction_shares.hpp"

#include <algorithm>

namespace espalier {

ReductionShares::Group& ReductionShares::group_of(std::map<GroupKey, Group>& groups, const GroupKey& key, int size) {
  const auto [entry, is_new] = groups.try_emplace(key);
  if (is_new) {
    entry->second.size = size;
    for (std::vector<Index>* const values :
         {&entry->second.owned, &entry->second.owned_in_units, &entry->second.largest_slice})
      values->assign(static_cast<std::size_t>(size), 0);
  }
  return entry->second;
}

ReductionShares::ReductionShares(const ReductionPlan& plan, const GroupRanks& ranks, const ReducerOptions& options,
                                 Index flat_size, Index gradient_bytes)
    : options_(options), gradient_bytes_(gradient_bytes), alone_(flat_size) {
  for (std::size_t unit = 0; unit < plan.units.size(); ++unit) {
    const Index times = options.times_of(unit);
    alone_ += (times - 1) * plan.units[unit].size();
    alone_in_units_ += times * plan.units[unit].size();
  }
  const auto enter = [](Group& group, const Bucket& bucket, Index times, bool in_unit) {
    group.count += static_cast<int>(times);
    group.largest_bucket = std::max(group.largest_bucket, bucket.size);
    for (std::size_t rank = 0; rank < group.owned.size(); ++rank) {
      const Index slice = bucket.slice(static_cast<int>(rank)).size();
      group.owned[rank] += times * slice;
      group.owned_in_units[rank] += in_unit ? times * slice : 0;
      group.largest_slice[rank] = std::max(group.largest_slice[rank], slice);
    }
  };
  const auto times_of = [&](const Bucket& bucket) {
    return bucket.unit < 0 ? 1 : options.times_of(static_cast<std::size_t>(bucket.unit));
  };
  for (const Bucket& bucket : plan.buckets) {
    const Index times = times_of(bucket);
    alone_ -= times * bucket.size;
    alone_in_units_ -= bucket.unit < 0 ? 0 : times * bucket.size;
    enter(group_of(groups_, bucket.group, ranks.at(bucket.group).size), bucket, times, bucket.unit >= 0);
  }
  std::size_t next = 0;  // of the second level: in the order of the buckets that have one
  for (const Bucket& bucket : plan.buckets)
    if (const int size = ranks.at(bucket.group).second_size; size > 1)
      enter(group_of(second_, bucket.group, size), plan.second.at(next++), times_of(bucket), bucket.unit >= 0);
  has_copies_ = plan.has_copies;
}

std::uint64_t ReductionShares::buffer_bytes(const Group& group, Index largest_slice) const {
  const Index received = largest_slice * (group.size - 1);
  const Index each = options_.wire ? (received + group.largest_bucket) * static_cast<Index>(size_of(*options_.wire))
                                   : received * gradient_bytes_;
  return static_cast<std::uint64_t>(std::min<Index>(group.count, std::max(1, options_.buckets_in_flight)) * each);
}

ReductionShare ReductionShares::of(const GroupRanks& ranks) const {
  return share([&](const std::vector<Index>& values, const GroupKey& key, bool of_second) {
    const GroupRank& ours = ranks.at(key);
    return values.at(static_cast<std::size_t>(of_second ? ours.second_rank : ours.rank));
  });
}

ReductionShare ReductionShares::most() const {
  return share(
      [](const std::vector<Index>& values, const GroupKey&, bool) { return *std::ranges::max_element(values); });
}

template <class Choice>
ReductionShare ReductionShares::share(const Choice& choice) const {
  ReductionShare share{.owned = alone_, .owned_in_units = alone_in_units_};
  for (const auto& [key, group] : groups_) {
    share.buffer_bytes += buffer_bytes(group, choice(group.largest_slice, key, false));
    const auto second = second_.find(key);
    if (second != second_.end())
      share.buffer_bytes += buffer_bytes(second->second, choice(second->second.largest_slice, key, true));
    // Copies of a shard are summed in it; else the second level shares the slices of the first.
    const bool is_shared = second != second_.end() && !has_copies_;
    const Group& owners = is_shared ? second->second : group;
    share.owned += choice(owners.owned, key, is_shared);
    share.owned_in_units += choice(owners.owned_in_units, key, is_shared);
  }
  return share;
}

}  // namespace espalier
