// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/parameter.hpp"
#include "parallel/collectives/communicator.hpp"
#include "parallel/collectives/messages.hpp"
#include "parallel/collectives/mpi_buffer.hpp"
#include "parallel/collectives/wire_values.hpp"
#include "parallel/reduction/reduction_plan.hpp"

namespace espalier {

struct ReducerStats {
  double exposed_seconds = 0;       ///< in wait() and wait_gather(), since begin_step()
  double early_seconds = 0;         ///< of them, before all other stages had sent their part of the tied gradients
  std::uint64_t bytes_sent = 0;     ///< since begin_step(), all communicators
  std::uint64_t messages_sent = 0;  ///< the same
  std::map<GroupKey, std::uint64_t> bytes_by_group;  ///< the same by group of the communicator
};

/// Sums gradients over the ranks of their reduction group while backward goes on. Per step: begin_step();
/// mark_ready(segment) as soon as a segment's gradient is final (last micro-batch only); progress() now and then, as
/// nothing moves during a kernel; wait(), after which owned() holds the sums, the same bits in every run: each rank
/// owns a slice of each bucket and adds the others' values in rank order. Without ZeRO the slices then go round and
/// owned() is the whole array. With ZeRO-1 the owner updates its weights; start_gather(weights), wait_gather() hand
/// them round.
///
/// The buckets of a communicator start in one order on all its ranks, from the end of the array to its start, each as
/// soon as it is full, those before it have started and an exchange is free. Communicators do not wait for each
/// other: the two stages of a tied bucket may come to it at different times. What was never marked is reduced in
/// wait(). All memory is allocated in the constructor. For one rank there is nothing to do.
///
/// With ZeRO-2 and -3 layers ("units") are summed after each micro-batch, as a list of actions
/// (parallel/schedule/unit_actions.hpp) says it: their sums are added to this rank's shard.
///
/// A sum may have a second level (GroupRank), over those that hold our slice of a bucket in other groups of the first.
/// With hybrid sharding (FSDP's hybrid strategy, Zhao et al., 2023) owned() is this rank's shard of its copy, which is
/// summed over all copies after the last micro-batch. In a sum over many replicas the slice is cut again, after every
/// micro-batch: owned() is a slice of a slice. What goes back goes through the second level first.
///
/// Where device links carry the messages, all of a bucket's reduction is enqueued when it starts, on a stream beside
/// that of backward, and wait() makes later kernels wait, not the host.
template <class S>
class GradientReducer {
 public:
  /// Collective over all of `communicators`. Kernels that fill `gradients` run on `exec`. Bucket and slice ends follow
  /// the rows of `parameters` (flat order), see plan_reduction().
  GradientReducer(const ExecSpace& exec, const ReductionCommunicators& communicators, const FlatStorage<S>& gradients,
                  std::vector<Segment> segments, const std::vector<Parameter>& parameters,
                  const ReducerOptions& options = {});

  /// Arms all buckets for the next reduction.
  void begin_step();

  /// The gradient of segments()[index] is final. Its bucket's reduction starts now if that fills it.
  void mark_ready(int segment);

  /// Must not be marked: it was in this step, or it lies in a unit, which reduce() sums.
  bool is_marked(int segment) const { return marked_.at(static_cast<std::size_t>(segment)) != 0; }

  /// Returns when the gradients of the unit may be written, calling `meanwhile` between polls.
  void wait_for_buffer(int unit, const std::function<void()>& meanwhile = {});

  /// The unit's gradients of one micro-batch are there: their sum starts. In one order on all ranks.
  void reduce(int unit, bool is_last);

  /// Advances what is in flight without waiting.
  void progress();

  /// Completes all buckets, also those never marked.
  void wait();

  /// Starts to bring the owners' elements of `weights` to all ranks of their group, but those of units of which this
  /// rank holds slices; after wait(), once kernels on `exec` have been given the update. Nothing to do without ZeRO.
  template <class T>
  void start_gather(const FlatStorage<T>& weights) {
    static_assert(std::is_trivially_copyable_v<T>);
    const Tensor<T, 1> values = weights.values();
    weight_places_.clear();
    for (const Bucket& bucket : plan_.buckets)
      weight_places_.push_back(weights.unit_of(bucket.offset) < 0 ? weights.place(bucket.offset) : -1);
    start_gather_of(
        Tensor<unsigned char, 1>(reinterpret_cast<unsigned char*>(values.data()), values.extent(0) * sizeof(T)),
        static_cast<Index>(sizeof(T)));
  }

  /// Completes the gather; kernels on `exec` then see all weights.
  void wait_gather();

  /// Ascending flat ranges whose summed gradients this rank has after wait().
  const std::vector<IndexRange>& owned() const { return plan_.owned; }
  const ReductionPlan& plan() const { return plan_; }
  const std::vector<Bucket>& buckets() const { return plan_.buckets; }
  const std::vector<Segment>& segments() const { return segments_; }
  ReducerStats stats() const;

 private:
  enum class Pass { reduce, gather };
  // Tags, on communicators of our own: num_message_phases x (number of the bucket in its group) + phase.
  enum MessagePhase : int { values_phase, sums_phase, weights_phase, num_message_phases };
  // idle; others' values arrive; the second level goes on with their sum; sums or weights go round
  enum class Stage { idle, collecting, second_level, distributing };
  struct BucketExchange {
    MessageSet values_messages;
    MessageSet rounds;
    Stage stage = Stage::idle;
    int bucket = 0;    // of the group
    Index number = 0;  // of the reductions of this group, in the order of their start
    double began = 0;
    Tensor<unsigned char, 1> received;  // (size - 1, slice), as they travel
    MpiBuffer<unsigned char> received_mpi;
    WireValues<S> values;  // of the bucket
  };
  struct UnitSum {
    int buckets = 0;  // that are not summed yet
    bool is_last = false;
    double began = 0;
  };
  struct Group {  // the buckets of one communicator
    Group(Communicator own, const GroupKey& its_key, const ExecSpace& work, bool of_second_level)
        : communicator(std::move(own)), key(its_key), exec(work), is_second(of_second_level) {}

    const Communicator& round_communicator() const { return rounds ? *rounds : communicator; }

    Communicator communicator;
    // Of sums that go round while other buckets' values arrive, where the MPI library carries both: how the two kinds
    // interleave is another on each rank, and collectives of one communicator begin in one order on all. Each kind
    // does, in the order of the buckets.
    std::optional<Communicator> rounds;
    GroupKey key;
    ExecSpace exec;  // of its kernels and messages; on a device a stream beside that of backward
    bool is_second;  // the second level of the group before it
    bool spans_stages = false;
    std::vector<int> buckets;  // of the plan: of its second level, where it is that
    std::vector<BucketExchange> exchanges;
    std::size_t num_looked_at = 0;  // buckets in the pass's order
    std::deque<int> ready;          // to be started, in this order; numbers within `buckets`
    int num_in_flight = 0;
    Index num_reductions = 0;   // begun, of all steps
    Index num_distributed = 0;  // of them, summed
    Index num_returned = 0;     // of them, come back from the second level
    Index num_done = 0;
    Traffic traffic_before;
    double sent_at = 0;  // when the others had sent their values of all that came so far; of a group across stages
    Traffic traffic() const {
      const Traffic of_rounds = rounds ? rounds->traffic() : Traffic();
      return {communicator.traffic().bytes + of_rounds.bytes, communicator.traffic().messages + of_rounds.messages};
    }
    bool is_idle() const { return ready.empty() && num_in_flight == 0; }
    bool all_done() const { return num_looked_at == buckets.size() && is_idle(); }
  };

  void add_group(const Communicator& communicator, const GroupKey& key, bool is_second, const ReducerOptions& options);
  void check_same_plan(const Group& group) const;
  void start_gather_of(const Tensor<unsigned char, 1>& weights, Index element_bytes);
  void begin_pass(Pass pass);
  void progress(Group& group);
  void advance(Group& group, BucketExchange& exchange);
  void look_for_ready(Group& group);
  void start(Group& group, BucketExchange& exchange);
  void collect(Group& group, BucketExchange& exchange);
  void distribute(Group& group, BucketExchange& exchange);
  void gather(Group& group, BucketExchange& exchange);
  void send_round(Group& group, BucketExchange& exchange, unsigned char* bucket_data, Index element_bytes);
  void finish(Group& group, BucketExchange& exchange);
  void start_second_level(const Group& group, const BucketExchange& exchange);
  void finish_second_level(std::size_t bucket_of_plan);
  void complete(const char* what);
  void wait_until(const std::function<bool()>& is_done, const std::function<void()>& meanwhile = {});
  double others_sent_at() const;
  const BucketExchange& oldest() const;
  const MessageSet& messages_of(const BucketExchange& exchange) const {
    return exchange.stage == Stage::collecting ? exchange.values_messages : exchange.rounds;
  }
  std::string describe(const BucketExchange& exchange) const;
  const Bucket& bucket_of(const Group& group, int index) const {
    const std::vector<Bucket>& buckets = group.is_second ? plan_.second : plan_.buckets;
    return buckets[number_in_plan(group, index)];
  }
  static std::size_t number_in_plan(const Group& group, int index) {
    return static_cast<std::size_t>(group.buckets[static_cast<std::size_t>(index)]);
  }
  // Sums do not go round.
  bool keeps_slices(const Group& group) const { return zero_stage_ > 0 && !(group.is_second && plan_.has_copies); }
  // Its sums are of the first level only: the second adds to them before they go round or into the shard.
  bool is_continued(const Group& group) const { return plan_.has_two_levels() && !group.is_second; }
  Group& second_level_of(const Group& group) { return groups_[static_cast<std::size_t>(&group - groups_.data()) + 1]; }
  Index weight_place(const Group& group, const BucketExchange& exchange) const {
    const std::size_t b = number_in_plan(group, exchange.bucket);
    return weight_places_[b] + bucket_of(group, exchange.bucket).offset - plan_.buckets[b].offset;
  }
  std::size_t buffer_of(int unit) const { return static_cast<std::size_t>(arrays_.storage.buffer_of(unit)); }
  Index num_done() const;
  bool all_done() const;

  ExecSpace exec_;
  GradientArrays<S> arrays_;
  std::vector<Segment> segments_;
  int zero_stage_;
  Index wire_bytes_;  // an element, as it travels
  ReductionPlan plan_;
  std::vector<Group> groups_;
  std::vector<int> missing_;        // by bucket: segments not marked yet
  std::vector<char> marked_;        // by segment
  std::vector<UnitSum> unit_sums_;  // by buffer of units
  std::vector<char> summed_;        // by bucket of a unit: whether the step has a sum of it
  std::vector<char> returned_;      // by bucket, of this pass: whether the second level is through with it
  Index num_returned_ = 0;
  Pass pass_ = Pass::reduce;
  Tensor<unsigned char, 1> weights_;
  MpiBuffer<unsigned char> weights_mpi_;
  Index weight_bytes_ = 1;            // an element
  std::vector<Index> weight_places_;  // by bucket, in weights_; -1: not gathered here
  double exposed_seconds_ = 0;
  double early_seconds_ = 0;
};

}  // namespace espalier
