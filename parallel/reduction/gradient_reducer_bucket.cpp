// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Of the gradient reducer the exchange of one bucket: from the values of others to sums, and to what goes back.
#include <fmt/format.h>

#include <algorithm>

#include "core/region.hpp"
#include "parallel/collectives/rank_order.hpp"
#include "parallel/device/device_stream.hpp"
#include "parallel/reduction/gradient_reducer.hpp"

namespace espalier {

template <class S>
void GradientReducer<S>::advance(Group& group, BucketExchange& exchange) {
  if (exchange.stage == Stage::collecting && exchange.values_messages.test() &&
      exchange.number == group.num_distributed) {
    group.sent_at = std::max(group.sent_at, exchange.values_messages.sent_at());
    ++group.num_distributed;
    distribute(group, exchange);
  }
  if (exchange.stage == Stage::second_level && exchange.number == group.num_returned &&
      returned_[number_in_plan(group, exchange.bucket)] != 0) {
    ++group.num_returned;
    const Bucket& bucket = bucket_of(group, exchange.bucket);
    order_after(group.exec, second_level_of(group).exec);
    exchange.values.pack(group.exec, bucket, bucket.slice(group.communicator.rank()));
    send_round(group, exchange, exchange.values.data(bucket), wire_bytes_);
  }
  if (exchange.stage == Stage::distributing && exchange.rounds.test())
    finish(group, exchange);
}

template <class S>
void GradientReducer<S>::start(Group& group, BucketExchange& exchange) {
  const Region region("espalier::parallel::gradient_reducer::start");
  exchange.bucket = group.ready.front();
  group.ready.pop_front();
  ++group.num_in_flight;
  exchange.began = group.communicator.clock().now();
  order_after(group.exec, exec_);
  if (pass_ == Pass::reduce)
    collect(group, exchange);
  else
    gather(group, exchange);
}

template <class S>
void GradientReducer<S>::collect(Group& group, BucketExchange& exchange) {
  exchange.stage = Stage::collecting;
  exchange.number = group.num_reductions++;
  const Bucket& bucket = bucket_of(group, exchange.bucket);
  const int rank = group.communicator.rank();
  const auto own_bytes = static_cast<std::size_t>(bucket.slice(rank).size() * wire_bytes_);
  exchange.values.pack(group.exec, bucket, {bucket.offset, bucket.offset + bucket.size});
  exchange.values_messages.start_all_to_all(exchange.values.data(bucket), bucket.byte_slices(wire_bytes_),
                                            exchange.received_mpi.data(),
                                            received_ranges(rank, group.communicator.size(), own_bytes, own_bytes),
                                            num_message_phases * exchange.bucket + values_phase, group.spans_stages);
}

template <class S>
void GradientReducer<S>::distribute(Group& group, BucketExchange& exchange) {
  const Region region("espalier::parallel::gradient_reducer::distribute");
  const Bucket& bucket = bucket_of(group, exchange.bucket);
  const Communicator& peers = group.communicator;
  const IndexRange own = bucket.slice(peers.rank());
  exchange.received_mpi.store(group.exec, 0, own.size() * (peers.size() - 1) * wire_bytes_);
  exchange.values.add(group.exec, bucket, exchange.received, peers.rank(), peers.size());
  if (!keeps_slices(group) && !is_continued(group)) {
    exchange.values.load(group.exec, bucket, own);
    return send_round(group, exchange, exchange.values.data(bucket), wire_bytes_);
  }
  exchange.values.settle(group.exec, bucket, own);
  if (bucket.unit >= 0 && !is_continued(group)) {
    char& summed = summed_[number_in_plan(group, exchange.bucket)];
    exchange.values.accumulate(group.exec, bucket, own, summed == 0);
    summed = 1;
  }
  settle_before_messages(group.communicator, group.exec, "espalier::parallel: its buffer may receive again");
  start_second_level(group, exchange);
  if (keeps_slices(group))
    return finish(group, exchange);
  exchange.stage = Stage::second_level;
}

/// Our slice of the bucket is summed over the second level: of copies that of the shard, if no micro-batch follows.
template <class S>
void GradientReducer<S>::start_second_level(const Group& group, const BucketExchange& exchange) {
  const std::size_t b = number_in_plan(group, exchange.bucket);
  const int unit = bucket_of(group, exchange.bucket).unit;
  const bool is_last = unit < 0 || unit_sums_[buffer_of(unit)].is_last;
  if (group.is_second || plan_.second.empty() || (plan_.has_copies && !is_last))
    return;
  Group& second = second_level_of(group);
  second.num_looked_at += is_last ? 1 : 0;
  if (bucket_of(second, exchange.bucket).size == 0) {
    if (unit >= 0 && is_continued(group)) {
      summed_[b] = 1;
      --unit_sums_[buffer_of(unit)].buckets;
    }
    return finish_second_level(b);
  }
  order_after(second.exec, group.exec);
  second.ready.push_back(exchange.bucket);
}

/// Whatever the second level has done in this pass with the bucket of the plan, the first may go on.
template <class S>
void GradientReducer<S>::finish_second_level(std::size_t bucket_of_plan) {
  returned_[bucket_of_plan] = 1;
  ++num_returned_;
}

/// Our slice goes to all others of the communicator, and theirs come: of an array with `element_bytes` for each element
/// of the bucket, which begins at `bucket_data`.
template <class S>
void GradientReducer<S>::send_round(Group& group, BucketExchange& exchange, unsigned char* bucket_data,
                                    Index element_bytes) {
  exchange.stage = Stage::distributing;
  const Bucket& bucket = bucket_of(group, exchange.bucket);
  const std::vector<ByteRange> slices = bucket.byte_slices(element_bytes);
  const int tag = num_message_phases * exchange.bucket + (pass_ == Pass::reduce ? sums_phase : weights_phase);
  const auto rank = static_cast<std::size_t>(group.communicator.rank());
  exchange.rounds.start_all_gather(bucket_data + slices[rank].begin, bucket_data, slices, tag);
}

template <class S>
void GradientReducer<S>::gather(Group& group, BucketExchange& exchange) {
  const Bucket& bucket = bucket_of(group, exchange.bucket);
  const IndexRange own = bucket.slice(group.communicator.rank());
  const Index place = weight_place(group, exchange);
  if (is_continued(group))
    order_after(group.exec, second_level_of(group).exec);  // by which our slice has come
  weights_mpi_.load(group.exec, (place + own.begin - bucket.offset) * weight_bytes_, own.size() * weight_bytes_);
  send_round(group, exchange, weights_mpi_.data() + place * weight_bytes_, weight_bytes_);
}

template <class S>
void GradientReducer<S>::finish(Group& group, BucketExchange& exchange) {
  const Bucket& bucket = bucket_of(group, exchange.bucket);
  std::string what = fmt::format("{} bucket {} of {}", pass_ == Pass::reduce ? "reduce" : "gather", exchange.bucket,
                                 group.communicator.name());
  double began = exchange.began;
  bool is_whole = true;
  if (pass_ == Pass::gather) {
    weights_mpi_.store(group.exec, weight_place(group, exchange) * weight_bytes_, bucket.size * weight_bytes_);
  } else if (!keeps_slices(group)) {
    exchange.values.store(group.exec, bucket);
  } else if (bucket.unit >= 0 && is_continued(group)) {
    is_whole = false;
  } else if (bucket.unit >= 0) {
    UnitSum& sum = unit_sums_[buffer_of(bucket.unit)];
    is_whole = --sum.buckets == 0;
    began = sum.began;
    what = fmt::format("reduce layer {}", bucket.unit);
  }
  if (group.is_second)
    finish_second_level(number_in_plan(group, exchange.bucket));
  exchange.stage = Stage::idle;
  --group.num_in_flight;
  ++group.num_done;
  if (is_whole && group.communicator.device_link() == nullptr)  // else it has only begun
    group.communicator.observers().spent({.what = what,
                                          .phase = Phase::data_comm,
                                          .begin = began,
                                          .end = group.communicator.clock().now(),
                                          .in_background = true});
}

#define ESPALIER_INSTANTIATE(S)                                       \
  template void GradientReducer<S>::advance(Group&, BucketExchange&); \
  template void GradientReducer<S>::start(Group&, BucketExchange&);   \
  template void GradientReducer<S>::finish_second_level(std::size_t);
ESPALIER_INSTANTIATE(float)
ESPALIER_INSTANTIATE(double)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
