// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/weight_gatherer.hpp"

#include <fmt/format.h>

#include <algorithm>

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
  for (const ReductionCommunicators::Entry& entry : communicators.entries)
    if (std::any_of(plan_.gather_buckets.begin(), plan_.gather_buckets.end(),
                    [&](const Bucket& bucket) { return bucket.group == entry.key; }))
      groups_.emplace_back(entry.both_levels != nullptr ? *entry.both_levels : *entry.communicator, "weights",
                           entry.key, plan_.gather_buckets, exec_, false);
  ESPALIER_ASSERT(!groups_.empty(), "units are gathered, and nobody holds slices of them");
  held_ = MpiBuffer<T>(groups_.front().communicator, weights_.values());
  units_ = MpiBuffer<T>(groups_.front().communicator, weights_.buffers());
  buffers_.resize(static_cast<std::size_t>(weights_.num_buffers()));
  for (Buffer& buffer : buffers_)
    for (const BucketGroup& group : groups_) {
      buffer.messages.emplace_back(group.communicator, group.communicator.device_link(), group.exec);
      buffer.messages.back().keep(std::pair(held_, units_));
    }
}

/// f(group, number of the group, bucket) for all buckets of the unit.
template <class T>
template <class F>
void WeightGatherer<T>::for_each_bucket(int unit, const F& f) {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    for (const Bucket* bucket : groups_[i].buckets)
      if (bucket->unit == unit)
        f(groups_[i], i, *bucket);
}

template <class T>
void WeightGatherer<T>::gather(int unit) {
  const Region region("espalier::parallel::weight_gatherer::gather");
  Buffer& buffer = buffer_of(unit);
  ESPALIER_ASSERT(!buffer.is_in_use, fmt::format("unit {} takes the place of {}, which is in use", unit, buffer.unit));
  buffer.unit = unit;
  buffer.has_come = false;
  buffer.began = groups_.front().communicator.clock().now();
  for (const BucketGroup& group : groups_)
    order_after(group.exec, exec_);
  units_.prepare_receive(exec_);
  for_each_bucket(unit, [&](const BucketGroup& group, std::size_t i, const Bucket& bucket) {
    const IndexRange own = bucket.slice(group.communicator.rank());
    Index offset = 0;
    if (own.size() > 0) {
      offset = weights_.offset_of(own.begin);
      const Tensor<T, 1> shard(weights_.values().data() + offset, own.size());
      Kokkos::deep_copy(group.exec, Tensor<T, 1>(weights_.data(own.begin), own.size()), shard);
      held_.load(group.exec, offset, own.size());
    }
    buffer.messages[i].start_all_gather(held_.data() + offset, units_.data() + weights_.buffer_offset(bucket.offset),
                                        bucket.byte_slices(static_cast<Index>(sizeof(T))), tags::weights);
  });
  for (MessageSet& messages : buffer.messages)
    static_cast<void>(messages.test());  // enqueues what a device link carries
}

template <class T>
void WeightGatherer<T>::acquire(int unit, const std::function<void()>& meanwhile) {
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
  for_each_bucket(unit, [&](const BucketGroup& group, std::size_t, const Bucket& bucket) {
    const Communicator& peers = group.communicator;
    for (int peer = 0; peer < peers.size(); ++peer)
      if (const IndexRange theirs = bucket.slice(peer); peer != peers.rank() && theirs.size() > 0)
        units_.store(group.exec, weights_.buffer_offset(theirs.begin), theirs.size());
  });
  for (const BucketGroup& group : groups_)
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
  for (const BucketGroup& group : groups_)
    bytes += group.communicator.traffic().bytes;
  return bytes;
}

#define ESPALIER_INSTANTIATE(T) template class WeightGatherer<T>;
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
