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

/// Sums gradients over the ranks of their reduction group, overlapped with backward. Per step, call
/// - begin_step()
/// - mark_ready(segment) as soon as a segment's gradient is final (last micro-batch only)
/// - progress() now and then: MPI makes no progress during a kernel
/// - wait(), after which owned() holds the sums
/// - with ZeRO, gather_updated_weights() after the update
///
/// Each rank owns a slice of each bucket and adds the others' values in rank order, so every run has the same bits.
/// Without ZeRO the summed slices are then gathered, and owned() is the whole array.
///
/// The buckets of a communicator start in one order on all its ranks, from the end of the array to its start. A bucket
/// starts as soon as all its gradients are final, those before it have started and an exchange is free. Communicators
/// do not wait for each other: the two stages of a tied bucket may come to it at different times. wait() reduces what
/// was never marked. All memory is allocated in the constructor. For one rank there is nothing to do.
///
/// With ZeRO-2 and -3 layers are FSDP units: a list of actions (parallel/schedule/unit_actions.hpp) sums each after
/// every micro-batch, and the sum is added to this rank's shard.
///
/// A sum may have a second level (GroupRank), over the ranks that hold our slice of a bucket in other groups of the
/// first. There are two cases:
/// - Hybrid sharding (FSDP's hybrid strategy, Zhao et al., 2023): each node holds a copy of the state. owned() is this
///   rank's shard of its copy. Replicate groups sum their shards after the last micro-batch.
/// - A sum over many replicas: the slice is cut again, after every micro-batch. owned() is a slice of a slice. Sums and
///   weights are gathered in the second level first.
///
/// Over device links (NCCL) the whole reduction of a bucket is enqueued when it starts, on a stream of its own.
/// wait_for_buffer() then makes later kernels wait, not the host. wait() and gather_updated_weights() make the host
/// wait for the device: so what is exposed of the messages is timed by itself.
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

  /// The gradient of segments()[segment] is final. The reduction of its bucket starts now if this was the last one.
  void mark_ready(int segment);

  /// True if the segment was marked in this step, or lies in a unit, which reduce() sums. Then it must not be marked.
  bool is_marked(int segment) const { return marked_.at(static_cast<std::size_t>(segment)) != 0; }

  /// Returns when the gradients of the unit may be written, calling `meanwhile` between polls.
  void wait_for_buffer(int unit, const std::function<void()>& meanwhile = {});

  /// Starts the sum of the unit's gradients of one micro-batch. In one order on all ranks.
  void reduce(int unit, bool is_last);

  /// Advances what is in flight without waiting.
  void progress();

  /// Completes all buckets, also those never marked.
  void wait();

  /// All-gathers the updated weights from their owners; nothing without ZeRO. Call it after wait(), when the update is
  /// enqueued on `exec`. Kernels enqueued later see all weights. Units of ZeRO-3 are left to WeightGatherer.
  template <class T>
  void gather_updated_weights(const FlatStorage<T>& weights) {
    static_assert(std::is_trivially_copyable_v<T>);
    const Tensor<T, 1> values = weights.values();
    gather_bytes(Tensor<unsigned char, 1>(reinterpret_cast<unsigned char*>(values.data()), values.size() * sizeof(T)),
                 static_cast<Index>(sizeof(T)),
                 [&](Index element) { return weights.unit_of(element) < 0 ? weights.offset_of(element) : -1; });
  }

  /// Ascending flat ranges whose summed gradients this rank has after wait().
  const std::vector<IndexRange>& owned() const { return plan_.owned; }
  const ReductionPlan& plan() const { return plan_; }
  const std::vector<Bucket>& buckets() const { return plan_.buckets; }
  const std::vector<Segment>& segments() const { return segments_; }

  /// Of this step: the part of wait() before the other stage had sent.
  double bubble_seconds() const { return bubble_seconds_; }

  /// Since begin_step(), by group of the communicators.
  std::map<GroupKey, Traffic> traffic() const;

 private:
  using Exchange = BucketExchange<S>;
  using State = typename Exchange::State;
  enum class Pass { reduce, gather };

  // The buckets of a communicator, at one level of the sum.
  struct Group : BucketGroup {
    explicit Group(BucketGroup own) : BucketGroup(std::move(own)) {}

    Group* first_level = nullptr;   // where this is the second
    Group* second_level = nullptr;  // where the sum has one
    // The second level adds to this one's sums before they go round or into the shard. false: hybrid sharding, the
    // second level sums shards.
    bool is_sharded_over_both_levels = false;
    std::list<Exchange> idle;
    std::list<Exchange> in_flight;           // in the order of their start
    std::deque<std::size_t> ready;           // buckets to be started, in this order
    std::size_t num_marked = 0;              // of the buckets, in their order: all gradients are final
    std::vector<char> is_second_level_done;  // by bucket, of this pass
    std::vector<Index> weight_offsets;       // by bucket, in bytes
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

  Group& add_group(const Communicator& communicator, const GroupKey& key, Group* first_level,
                   const ReducerOptions& options);
  void gather_bytes(const Tensor<unsigned char, 1>& weights, Index element_bytes,
                    const std::function<Index(Index element)>& offset_of);
  void collect_ready(Group& group);
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
  double bubble_seconds_ = 0;
};

}  // namespace espalier
