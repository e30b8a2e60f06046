// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "parallel/collectives/messages.hpp"
#include "parallel/collectives/mpi_buffer.hpp"
#include "parallel/reduction/bucket_group.hpp"
#include "parallel/reduction/wire_values.hpp"

namespace espalier {

/// Communicates one bucket at a time. Its gradients are summed by a reduce_scatter: each rank sends every other rank
/// its slice (all_to_all), and adds what it receives in rank order. An all_gather then distributes the slices: of the
/// sums (both together are an all_reduce), or of updated weights. Between the two, the second level of a sum may reduce
/// our slice.
///
/// Owns the receive buffer, and the buffer of the wire type.
template <class S>
class BucketExchange {
 public:
  /// What is in flight, or waited for.
  enum class State { idle, values, second_level, sums, weights };

  /// Large enough for each of the group's buckets. @param wire see WireValues
  BucketExchange(const BucketGroup& group, const GradientArrays<S>& gradients, std::optional<ScalarType> wire,
                 const std::string& name);

  /// Starts the reduce_scatter of the group's bucket `number`.
  void scatter_values(std::size_t number);
  /// Advances what is in flight; true when it is complete.
  [[nodiscard]] bool test() { return messages().test(); }
  /// The values are received: our slice becomes the sum, in the wire type.
  void add();
  /// After add(), where no all_gather of the sum follows, or not yet: writes it into the gradients.
  void unpack_own_sum() const { values_.unpack_own_sum(bucket()); }
  /// After unpack_own_sum(), for a unit: adds the sum to the shard; the first sum of a step overwrites it.
  void add_to_shard(bool is_first) const { values_.add_to_shard(bucket(), is_first); }
  void enter_second_level() { state_ = State::second_level; }

  /// Starts the all_gather of the sums: those of add(), or of the gradients where the second level has reduced them.
  void gather_sums();
  /// The sums are received: writes them into the gradients.
  void unpack_all_sums() const { values_.unpack_all_sums(bucket()); }

  /// Starts the all_gather of the group's bucket `number` of another array: the bucket begins at byte `byte_offset` of
  /// `weights`. Both outlive the messages.
  void gather_weights(std::size_t number, const MpiBuffer<unsigned char>& weights, Index byte_offset,
                      Index element_bytes);

  void finish() { state_ = State::idle; }

  State state() const { return state_; }
  std::size_t number() const { return number_; }
  const Bucket& bucket() const { return *group_->buckets[number_]; }
  double began() const { return began_; }                       ///< by the job's clock
  double sent_at() const { return value_messages_.sent_at(); }  ///< the values, in a group that spans stages
  const MessageSet& messages() const { return state_ == State::values ? value_messages_ : gather_messages_; }
  std::string describe() const;

  /// `owner` holds memory of gather_weights(): see MessageSet.
  template <class Owner>
  void keep(const Owner& owner) {
    gather_messages_.keep(owner);
  }

 private:
  // Tags, on communicators of our own: num_message_phases x number of the bucket + phase.
  enum MessagePhase : int { values_phase, sums_phase, weights_phase, num_message_phases };

  MessageSet& messages() { return state_ == State::values ? value_messages_ : gather_messages_; }
  IndexRange own_slice() const { return bucket().slice(group_->communicator.rank()); }
  int tag(MessagePhase phase) const { return num_message_phases * static_cast<int>(number_) + phase; }
  void begin(State state, std::size_t number);
  void gather(unsigned char* bucket_data, Index element_bytes, MessagePhase phase);

  const BucketGroup* group_;
  State state_ = State::idle;
  std::size_t number_ = 0;
  double began_ = 0;
  Index wire_bytes_;  // of an element in the wire type
  MessageSet value_messages_;
  MessageSet gather_messages_;
  Tensor<unsigned char, 1> received_;  // (size - 1, slice), in the wire type
  MpiBuffer<unsigned char> received_mpi_;
  WireValues<S> values_;
};

}  // namespace espalier
