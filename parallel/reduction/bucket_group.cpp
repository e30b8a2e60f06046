// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/bucket_group.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/device/device_stream.hpp"

namespace espalier {

BucketGroup::BucketGroup(const Communicator& ranks, const std::string& what, const GroupKey& its_key,
                         const std::vector<Bucket>& all_buckets, const ExecSpace& work, bool to_gather_sums)
    : key(its_key), communicator(ranks.duplicate(ranks.name() + " " + what)), exec(work), gathers_sums(to_gather_sums) {
  communicator.open_device_link();
  if (communicator.device_link() != nullptr)
    exec = make_stream();
  else if (gathers_sums && ranks.size() > ranks.context().max_direct_ranks)
    sums_communicator = ranks.duplicate(ranks.name() + " sums");
  for (const Bucket& bucket : all_buckets)
    if (bucket.group == key)
      buckets.push_back(&bucket);
}

void BucketGroup::require_same_buckets(const std::vector<Index>& settings) const {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a, a number at a time
  const auto add = [&](Index value) { hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211u; };
  for (const Index value : settings)
    add(value);
  for (const Bucket* bucket : buckets) {
    add(bucket->size);
    add(bucket->unit);
    for (const Index bound : bucket->bounds)
      add(bound - bucket->offset);
  }
  const auto ours = static_cast<std::int64_t>(hash);
  std::vector<std::int64_t> all(static_cast<std::size_t>(communicator.size()));
  all_gather(communicator, std::span<std::int64_t>(all), std::span<const std::int64_t>(&ours, 1));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw Error(ExitCode::usage,
                  {.what = "ranks that sum gradients together use different buckets",
                   .where = fmt::format("communicator {}, parameters of group {}", communicator.name(), to_string(key)),
                   .got = fmt::format("rank {} has other buckets than rank {}",
                                      communicator.world_rank(static_cast<int>(rank)), communicator.world_rank(0)),
                   .wanted = "the same number and sizes of buckets",
                   .todo = "start all ranks with one config and one binary"});
}

Traffic BucketGroup::traffic() const {
  const Traffic of_gathers = sums_communicator ? sums_communicator->traffic() : Traffic();
  return {communicator.traffic().bytes + of_gathers.bytes, communicator.traffic().messages + of_gathers.messages};
}

}  // namespace espalier
