// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/weight_gatherer.hpp"

#include <fmt/format.h>

#include "core/error.hpp"
#include "core/region.hpp"
#include "parallel/device/device_stream.hpp"

namespace espalier {

template <class T>
WeightGatherer<T>::WeightGatherer(const ExecSpace& exec, const ReductionCommunicators& communicators,
                                  const FlatStorage<T>& weights, const ReductionPlan& plan)
    : exec_(exec), weights_(weights), plan_(plan) {
  if (!has_units())
    return;
  const GroupRanks ranks = communicators.ranks();
  for (const ReductionCommunicators::Entry& entry : communicators.entries) {
    std::vector<std::vector<int>> buckets(plan_.units.size());
    bool has_any = false;
    for (int b = 0; b < static_cast<int>(plan_.gathered.size()); ++b)
      if (const Bucket& bucket = plan_.gathered[static_cast<std::size_t>(b)]; bucket.group == entry.key) {
        buckets[static_cast<std::size_t>(bucket.unit)].push_back(b);
        has_any = true;
      }
    if (!has_any)
      continue;
    const Communicator& holders = entry.whole != nullptr ? *entry.whole : *entry.communicator;
    Communicator own = holders.duplicate(holders.name() + " weights");
    own.open_device_link();
    const ExecSpace its_exec = own.device_link() != nullptr ? make_stream() : exec_;
    groups_.push_back({std::move(own), entry.key, its_exec, std::move(buckets)});
  }
  ESPALIER_ASSERT(!groups_.empty(), "units are gathered, and nobody holds slices of them");
  held_ = MpiBuffer<T>(groups_.front().communicator, weights_.values());
  units_ = MpiBuffer<T>(groups_.front().communicator, weights_.buffers());
  buffers_.resize(static_cast<std::size_t>(weights_.num_buffers()));
  for (Buffer& buffer : buffers_)
    for (const Group& group : groups_) {
      buffer.messages.emplace_back(group.communicator, group.communicator.device_link(), group.exec);
      buffer.messages.back().keep(std::pair(held_, units_));
    }
}

/// f(group number, bucket, its number within the communicator) for all buckets of the unit.
template <class T>
template <class F>
void WeightGatherer<T>::for_each_bucket(int unit, const F& f) {
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (const int b : groups_[g].buckets[static_cast<std::size_t>(unit)])
      f(g, plan_.gathered[static_cast<std::size_t>(b)]);
}

template <class T>
void WeightGatherer<T>::gather(int unit) {
  const Region region("espalier::parallel::weight_gatherer::gather");
  Buffer& buffer = buffer_of(unit);
  ESPALIER_ASSERT(!buffer.is_in_use, fmt::format("unit {} takes the place of {}, which is in use", unit, buffer.unit));
  buffer.unit = unit;
  buffer.has_come = false;
  buffer.began = groups_.front().communicator.clock().now();
  for (const Group& group : groups_)
    order_after(group.exec, exec_);
  units_.vacate(exec_);
  for_each_bucket(unit, [&](std::size_t g, const Bucket& bucket) {
    const Communicator& peers = groups_[g].communicator;
    const IndexRange own = bucket.slice(peers.rank());
    Index place = 0;
    if (own.size() > 0) {
      place = weights_.place(own.begin);
      const Tensor<T, 1> shard(weights_.values().data() + place, own.size());
      Kokkos::deep_copy(groups_[g].exec, Tensor<T, 1>(weights_.data(own.begin), own.size()), shard);
      held_.load(groups_[g].exec, place, own.size());
    }
    buffer.messages[g].start_all_gather(held_.data() + place, units_.data() + weights_.buffer_place(bucket.offset),
                                        bucket.byte_slices(static_cast<Index>(sizeof(T))), tags::weights);
  });
  for (MessageSet& messages : buffer.messages)
    static_cast<void>(messages.test());  // enqueues what a device link carries
}

template <class T>
void WeightGatherer<T>::use(int unit, const std::function<void()>& meanwhile) {
  Buffer& buffer = buffer_of(unit);
  ESPALIER_ASSERT(buffer.unit == unit, fmt::format("unit {} is used, and {} was gathered", unit, buffer.unit));
  if (!buffer.has_come)
    finish(unit, meanwhile);
  buffer.is_in_use = true;
}

template <class T>
void WeightGatherer<T>::release(int unit) {
  buffer_of(unit).is_in_use = false;
}

template <class T>
void WeightGatherer<T>::finish(int unit, const std::function<void()>& meanwhile) {
  const Region region("espalier::parallel::weight_gatherer::finish");
  Buffer& buffer = buffer_of(unit);
  for (MessageSet& messages : buffer.messages)
    messages.wait(fmt::format("the weights of layer {} of {}", unit, weights_.units().size()), meanwhile);
  for_each_bucket(unit, [&](std::size_t g, const Bucket& bucket) {
    const Communicator& peers = groups_[g].communicator;
    for (int peer = 0; peer < peers.size(); ++peer)
      if (const IndexRange theirs = bucket.slice(peer); peer != peers.rank() && theirs.size() > 0)
        units_.store(groups_[g].exec, weights_.buffer_place(theirs.begin), theirs.size());
  });
  for (const Group& group : groups_)
    order_after(exec_, group.exec);
  buffer.has_come = true;
  const Communicator& communicator = groups_.front().communicator;
  const std::string what = fmt::format("gather layer {}", unit);
  if (communicator.device_link() == nullptr) {  // else it has only begun
    SpentTime gather{what, Phase::data_comm, buffer.began, communicator.clock().now()};
    gather.in_background = true;
    communicator.observers().spent(gather);
  }
  communicator.observers().layer_gathered(unit);
}

template <class T>
std::uint64_t WeightGatherer<T>::bytes_sent() const {
  std::uint64_t bytes = 0;
  for (const Group& group : groups_)
    bytes += group.communicator.traffic().bytes;
  return bytes;
}

#define ESPALIER_INSTANTIATE(T) template class WeightGatherer<T>;
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
