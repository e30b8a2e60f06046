// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "core/parameter.hpp"
#include "parallel/collectives/communicator.hpp"
#include "parallel/collectives/mpi_buffer.hpp"
#include "parallel/reduction/bucket_exchange.hpp"
#include "parallel/reduction/reduction_plan.hpp"

namespace espalier {

struct ReducerStats {
  double exposed_seconds = 0;       ///< in wait() and gather_updated_weights(), since begin_step()
  double early_seconds = 0;         ///< of them, before all other stages had sent their part of the tied gradients
  std::uint64_t bytes_sent = 0;     ///< since begin_step(), all communicators
  std::uint64_t messages_sent = 0;  ///< the same
  std::map<GroupKey, std::uint64_t> bytes_by_group;  ///< the same by group of the communicator
};

/// Sums gradients over the ranks of their reduction group while backward goes on. Per step: begin_step();
/// mark_ready(segment) as soon as a segment's gradient is final (last micro-batch only); progress() now and then, as
/// nothing moves during a kernel; wait(), after which owned() holds the sums, the same bits in every run: each rank
/// owns a slice of each bucket and adds the others' values in rank order. Without ZeRO the slices then go round and
/// owned() is the whole array. With ZeRO-1 the owner updates its weights; gather_updated_weights() hands them round.
///
/// The buckets of a communicator start in one order on all its ranks, from the end of the array to its start, each as
/// soon as it is full, those before it have started and an exchange is free. Communicators do not wait for each
/// other: the two stages of a tied bucket may come to it at different times. What was never marked is reduced in
/// wait(). All memory is allocated in the constructor. For one rank there is nothing to do.
///
/// With ZeRO-2 and -3 layers ("units") are summed after each micro-batch, as a list of actions
/// (parallel/schedule/unit_actions.hpp) says it: their sums are added to this rank's shard.
///
/// A sum may have a second level (GroupRank), over the ranks that hold our slice of a bucket in other groups of the
/// first. There are two cases:
/// - Hybrid sharding (FSDP's hybrid strategy, Zhao et al., 2023): each node holds a copy of the state. owned() is this
///   rank's shard of its copy. The copies are summed after the last micro-batch.
/// - A sum over many replicas: the slice is cut again, after every micro-batch. owned() is a slice of a slice. Sums and
///   weights are gathered in the second level first.
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

  /// True if the segment was marked in this step, or lies in a unit, which reduce() sums. Then it must not be marked.
  bool is_marked(int segment) const { return marked_.at(static_cast<std::size_t>(segment)) != 0; }

  /// Returns when the gradients of the unit may be written, calling `meanwhile` between polls.
  void wait_for_buffer(int unit, const std::function<void()>& meanwhile = {});

  /// The unit's gradients of one micro-batch are there: their sum starts. In one order on all ranks.
  void reduce(int unit, bool is_last);

  /// Advances what is in flight without waiting.
  void progress();

  /// Completes all buckets, also those never marked.
  void wait();

  /// All-gathers the updated weights from their owners. It skips the units of ZeRO-3, which WeightGatherer gathers.
  /// Call it after wait(), when the update is enqueued on `exec`; kernels enqueued later see all weights. Without ZeRO
  /// it does nothing.
  template <class T>
  void gather_updated_weights(const FlatStorage<T>& weights) {
    static_assert(std::is_trivially_copyable_v<T>);
    const Tensor<T, 1> values = weights.values();
    gather_bytes(Tensor<unsigned char, 1>(reinterpret_cast<unsigned char*>(values.data()), values.size() * sizeof(T)),
                 static_cast<Index>(sizeof(T)),
                 [&](Index element) { return weights.unit_of(element) < 0 ? weights.place(element) : -1; });
  }

  /// Ascending flat ranges whose summed gradients this rank has after wait().
  const std::vector<IndexRange>& owned() const { return plan_.owned; }
  const ReductionPlan& plan() const { return plan_; }
  const std::vector<Bucket>& buckets() const { return plan_.buckets; }
  const std::vector<Segment>& segments() const { return segments_; }
  ReducerStats stats() const;

 private:
  using Exchange = BucketExchange<S>;
  using State = typename Exchange::State;
  enum class Pass { reduce, gather };

  // The buckets of a communicator, at one level of the sum.
  struct Group : BucketGroup {
    explicit Group(BucketGroup own) : BucketGroup(std::move(own)) {}

    Group* first = nullptr;   // level, where this is the second
    Group* second = nullptr;  // level, where the sum has one
    std::list<Exchange> idle;
    std::list<Exchange> in_flight;        // in the order of their start
    std::deque<std::size_t> ready;        // buckets to be started, in this order
    std::size_t num_marked = 0;           // of the buckets, in their order: all gradients are final
    std::vector<char> is_through_second;  // by bucket, of this pass
    std::vector<Index> weight_places;     // by bucket, in bytes
    Traffic traffic_before;

    bool is_idle() const { return ready.empty() && in_flight.empty(); }
  };
  using InFlight = typename std::list<Exchange>::iterator;
  // Of one micro-batch.
  struct UnitSum {
    int buckets = 0;  // that are not summed yet
    bool is_last = false;
    double began = 0;
  };

  Group& add_group(const Communicator& communicator, const GroupKey& key, bool is_second,
                   const ReducerOptions& options);
  void gather_bytes(const Tensor<unsigned char, 1>& weights, Index element_bytes,
                    const std::function<Index(Index element)>& place_of);
  void queue_marked(Group& group);
  void progress(Group& group);
  void start(Group& group);
  void advance(Group& group, InFlight exchange);
  void sum(Group& group, InFlight exchange);
  void finish(Group& group, InFlight exchange);
  void finish_bucket(Group& group, std::size_t number);
  void record(const Group& group, const std::string& what, double began) const;
  void complete(const char* what);
  void wait_until(const std::function<bool()>& is_done, const std::function<void()>& meanwhile = {});
  const Exchange& oldest() const;
  bool all_done() const;
  // The second level adds to its sums before they go round or into the shard.
  bool is_partial(const Group& group) const { return group.second != nullptr && !plan_.has_copies; }
  UnitSum& sum_of(int unit) { return unit_sums_[static_cast<std::size_t>(arrays_.storage.buffer_of(unit))]; }

  ExecSpace exec_;
  GradientArrays<S> arrays_;
  std::vector<Segment> segments_;
  int zero_stage_;
  ReductionPlan plan_;
  std::deque<Group> groups_;        // a second level behind its first; they stay where they are
  std::vector<char> marked_;        // by segment
  std::vector<UnitSum> unit_sums_;  // by buffer of units
  std::vector<int> num_sums_;       // by unit, begun in this step
  Pass pass_ = Pass::reduce;
  Tensor<unsigned char, 1> weights_;
  MpiBuffer<unsigned char> weights_mpi_;
  Index weight_bytes_ = 1;     // an element
  Index num_done_ = 0;         // exchanges, since the start
  double others_sent_at_ = 0;  // their values of the buckets that came so far, in groups across stages
  double exposed_seconds_ = 0;
  double early_seconds_ = 0;
};

}  // namespace espalier
