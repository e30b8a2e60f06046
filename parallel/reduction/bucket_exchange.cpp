// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/bucket_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/error.hpp"
#include "parallel/collectives/rank_order.hpp"

namespace espalier {
namespace {

Index largest_own_slice(const BucketGroup& group) {
  Index largest = 0;
  for (const Bucket* bucket : group.buckets)
    largest = std::max(largest, bucket->slice(group.communicator.rank()).size());
  return largest;
}

}  // namespace

template <class S>
BucketExchange<S>::BucketExchange(const BucketGroup& group, const GradientArrays<S>& gradients,
                                  std::optional<ScalarType> wire, const std::string& name)
    : group_(&group),
      wire_bytes_(WireValues<S>::element_bytes(wire)),
      value_messages_(group.communicator, group.communicator.device_link(), group.exec),
      gather_messages_(group.gather_communicator(), group.communicator.device_link(), group.exec),
      received_(allocate<unsigned char>(Category::communication, "bucket_" + name,
                                        largest_own_slice(group) * (group.communicator.size() - 1) * wire_bytes_)),
      received_mpi_(group.communicator, received_),
      values_(group, gradients, wire, "values_" + name) {
  ESPALIER_ASSERT(static_cast<int>(group.buckets.size()) <= tags::largest / num_message_phases,
                  "too many buckets for MPI's tags");
  value_messages_.keep(std::tuple(received_, received_mpi_, values_));
  gather_messages_.keep(values_);
}

template <class S>
void BucketExchange<S>::begin(State state, std::size_t number) {
  state_ = state;
  number_ = number;
  began_ = group_->communicator.clock().now();
}

template <class S>
void BucketExchange<S>::scatter_values(std::size_t number) {
  begin(State::values, number);
  const Communicator& peers = group_->communicator;
  const auto own_bytes = static_cast<std::size_t>(own_slice().size() * wire_bytes_);
  values_.pack(bucket(), bucket().range());
  value_messages_.start_all_to_all(values_.data(bucket()), bucket().byte_slices(wire_bytes_), received_mpi_.data(),
                                   received_ranges(peers.rank(), peers.size(), own_bytes, own_bytes), tag(values_phase),
                                   group_->spans_stages);
}

template <class S>
void BucketExchange<S>::add() {
  const Communicator& peers = group_->communicator;
  received_mpi_.store(group_->exec, 0, own_slice().size() * (peers.size() - 1) * wire_bytes_);
  values_.add(bucket(), received_);
}

template <class S>
void BucketExchange<S>::gather_sums() {
  if (state_ == State::second_level)
    values_.pack(bucket(), own_slice());
  else
    values_.load_sums(bucket());
  state_ = State::sums;
  gather(values_.data(bucket()), wire_bytes_, sums_phase);
}

template <class S>
void BucketExchange<S>::gather_weights(std::size_t number, const MpiBuffer<unsigned char>& weights, Index byte_offset,
                                       Index element_bytes) {
  begin(State::weights, number);
  weights.load(group_->exec, byte_offset + (own_slice().begin - bucket().offset) * element_bytes,
               own_slice().size() * element_bytes);
  gather(weights.data() + byte_offset, element_bytes, weights_phase);
}

template <class S>
void BucketExchange<S>::gather(unsigned char* bucket_data, Index element_bytes, MessagePhase phase) {
  const std::vector<ByteRange> slices = bucket().byte_slices(element_bytes);
  const auto rank = static_cast<std::size_t>(group_->communicator.rank());
  gather_messages_.start_all_gather(bucket_data + slices[rank].begin, bucket_data, slices, tag(phase));
}

template <class S>
std::string BucketExchange<S>::describe() const {
  const char* const what = state_ == State::weights ? "weights" : state_ == State::values ? "values" : "sums";
  return fmt::format("the {} of gradient bucket {} of {}", what, number_, group_->buckets.size());
}

#define ESPALIER_INSTANTIATE(S) template class BucketExchange<S>;
ESPALIER_FOR_STATE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
