// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/region.hpp"
#include "parallel/collectives.hpp"
#include "parallel/device_queue.hpp"
#include "parallel/rank_order.hpp"

namespace espalier {
namespace {

// Tags, on communicators of our own: num_phases x (number of the bucket in its lane) + phase.
enum MessagePhase : int { values_phase, sums_phase, weights_phase, num_phases };

ReductionCommunicators with_planted_fault(ReductionCommunicators communicators) {
  const PlantedFault fault = communicators.replicas->context().planted_fault;
  if (fault == PlantedFault::no_tied_reduction)
    communicators.tied = communicators.replicas;
  if (fault == PlantedFault::no_tensor_sum)
    communicators.replicas_and_tensor = communicators.replicas;
  return communicators;
}

}  // namespace

template <class S>
GradientReducer<S>::GradientReducer(const ExecSpace& exec, const ReductionCommunicators& communicators,
                                    const Tensor<S, 1>& gradients, std::vector<Segment> segments,
                                    const std::vector<Parameter>& parameters, const ReducerOptions& options)
    : exec_(exec),
      gradients_(gradients),
      segments_(std::move(segments)),
      zero_stage_(options.zero_stage),
      wire_bytes_(WireValues<S>::element_bytes(options.wire)) {
  const ReductionCommunicators summed_over = with_planted_fault(communicators);
  const PerGroup<GroupPlace> places = summed_over.places();
  ESPALIER_ASSERT(zero_stage_ == 0 || zero_stage_ == 1, fmt::format("there is no ZeRO stage {}", zero_stage_));
  plan_ = plan_reduction(segments_, parameters, places, options, static_cast<Index>(sizeof(S)));
  const auto has_lane = [&](ReductionGroup group) { return places[group].joins == group && places[group].size > 1; };
  for (const ReductionGroup group : all_reduction_groups)
    if (has_lane(group))
      add_lane(summed_over[group], group, options);
  begin_step();
}

template <class S>
void GradientReducer<S>::add_lane(const Communicator& communicator, ReductionGroup group,
                                  const ReducerOptions& options) {
  Lane lane(communicator.duplicate(communicator.name() + " gradients"), group, exec_);
  lane.communicator.open_device_link();
  if (lane.communicator.device_link() != nullptr)
    lane.exec = make_queue();
  if (lanes_.empty())
    gradients_mpi_ = MpiBuffer<S>(lane.communicator, gradients_);
  Index largest_slice = 0;
  Index largest_bucket = 0;
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    if (plan_.buckets[b].group == group) {
      lane.buckets.push_back(static_cast<int>(b));
      largest_slice = std::max(largest_slice, plan_.buckets[b].slice(communicator.rank()).size());
      largest_bucket = std::max(largest_bucket, plan_.buckets[b].size);
    }
  const auto num_buckets = static_cast<int>(lane.buckets.size());
  ESPALIER_ASSERT(num_buckets <= tags::largest / num_phases, "too many buckets for MPI's tags");
  check_same_plan(lane);
  for (int i = 0; i < std::min(std::max(1, options.buckets_in_flight), num_buckets); ++i) {
    const std::string name = fmt::format("{}_{}", communicator.name(), i);
    const auto received = allocate<unsigned char>(Category::communication, "bucket_" + name,
                                                  largest_slice * (communicator.size() - 1) * wire_bytes_);
    lane.places.push_back(
        {MessageSet(lane.communicator, lane.communicator.device_link(), lane.exec), Stage::idle, 0, 0, received,
         MpiBuffer<unsigned char>(lane.communicator, received),
         WireValues<S>(lane.communicator, gradients_, gradients_mpi_, options.wire, "values_" + name, largest_bucket)});
  }
  lanes_.push_back(std::move(lane));
}

/// Ranks that cut differently would add unlike elements, or wait for ever.
template <class S>
void GradientReducer<S>::check_same_plan(const Lane& lane) const {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a, a number at a time
  const auto add = [&](Index value) { hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211u; };
  add(zero_stage_);
  add(wire_bytes_);
  for (const int b : lane.buckets) {
    const Bucket& bucket = plan_.buckets[static_cast<std::size_t>(b)];
    add(bucket.size);
    for (const Index bound : bucket.bounds)
      add(bound - bucket.offset);
  }
  const auto ours = static_cast<std::int64_t>(hash);
  std::vector<std::int64_t> all(static_cast<std::size_t>(lane.communicator.size()));
  all_gather(lane.communicator, std::span<std::int64_t>(all), std::span<const std::int64_t>(&ours, 1));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw Error(ExitCode::usage, {.what = "ranks that sum gradients together cut them differently",
                                    .where = fmt::format("communicator {}, parameters of group {}",
                                                         lane.communicator.name(), to_string(lane.group)),
                                    .got = fmt::format("rank {} other buckets than rank {}",
                                                       lane.communicator.world_rank(static_cast<int>(rank)),
                                                       lane.communicator.world_rank(0)),
                                    .wanted = "the same number and sizes of buckets",
                                    .todo = "start all ranks with one config and one binary"});
}

template <class S>
bool GradientReducer<S>::all_done() const {
  return std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.all_done(); });
}

template <class S>
void GradientReducer<S>::begin_pass(Pass pass) {
  pass_ = pass;
  for (Lane& lane : lanes_)
    lane.num_started = lane.num_done = 0;
}

template <class S>
void GradientReducer<S>::begin_step() {
  const bool idle = std::all_of(lanes_.begin(), lanes_.end(), [this](const Lane& lane) {
    return pass_ == Pass::gather ? lane.all_done() : lane.num_started == lane.num_done;
  });
  ESPALIER_ASSERT(idle, "begin_step() while buckets are in flight: call wait(), and wait_gather(), first");
  begin_pass(Pass::reduce);
  exposed_seconds_ = early_seconds_ = 0;
  for (Lane& lane : lanes_) {
    lane.bytes_before = lane.communicator.traffic().bytes;
    lane.sent_at = 0;
  }
  marked_.assign(segments_.size(), 0);
  missing_.resize(plan_.buckets.size());
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    missing_[b] = plan_.buckets[b].last_segment - plan_.buckets[b].first_segment + 1;
}

template <class S>
void GradientReducer<S>::mark_ready(int segment) {
  ESPALIER_ASSERT(segment >= 0 && segment < static_cast<int>(segments_.size()),
                  fmt::format("there is no segment {}", segment));
  if (lanes_.empty())
    return;
  ESPALIER_ASSERT(!marked_[static_cast<std::size_t>(segment)],
                  fmt::format("segment {} was marked twice in one step, or after wait()", segment));
  marked_[static_cast<std::size_t>(segment)] = 1;
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    if (plan_.buckets[b].first_segment <= segment && segment <= plan_.buckets[b].last_segment)
      --missing_[b];
  progress();
}

template <class S>
void GradientReducer<S>::progress() {
  for (Lane& lane : lanes_)
    progress(lane);
}

template <class S>
void GradientReducer<S>::progress(Lane& lane) {
  for (Place& place : lane.places)
    advance(lane, place);
  const auto is_idle = [](const Place& place) { return place.stage == Stage::idle; };
  while (next_is_ready(lane)) {
    const auto place = std::find_if(lane.places.begin(), lane.places.end(), is_idle);
    if (place == lane.places.end())
      return;
    start(lane, *place);
    advance(lane, *place);  // what is queued is through at once: in the order of the buckets on all ranks
  }
}

template <class S>
bool GradientReducer<S>::next_is_ready(const Lane& lane) const {
  const auto next = static_cast<std::size_t>(lane.num_started);
  return next < lane.buckets.size() &&
         (pass_ == Pass::gather || missing_[static_cast<std::size_t>(lane.buckets[next])] == 0);
}

template <class S>
void GradientReducer<S>::advance(Lane& lane, Place& place) {
  if (place.stage == Stage::collecting && place.messages.test()) {
    lane.sent_at = std::max(lane.sent_at, place.messages.sent_at());
    distribute(lane, place);
  }
  if (place.stage == Stage::distributing && place.messages.test())
    finish(lane, place);
}

template <class S>
void GradientReducer<S>::start(Lane& lane, Place& place) {
  const Region region("espalier::parallel::gradient_reducer::start");
  place.bucket = lane.num_started++;
  place.began = lane.communicator.clock().now();
  order_after(lane.exec, exec_);
  if (pass_ == Pass::reduce)
    collect(lane, place);
  else
    gather(lane, place);
}

template <class S>
void GradientReducer<S>::collect(Lane& lane, Place& place) {
  place.stage = Stage::collecting;
  const Bucket& bucket = bucket_of(lane, place.bucket);
  const int rank = lane.communicator.rank();
  const int size = lane.communicator.size();
  const int tag = num_phases * place.bucket + values_phase;
  const Index own_bytes = bucket.slice(rank).size() * wire_bytes_;
  place.values.pack(lane.exec, bucket);
  for (int step = 1; step < size; ++step) {
    const int peer = (rank - step + size) % size;
    place.messages.receive(place.received_mpi.data() + received_slot(peer, rank) * own_bytes,
                           static_cast<std::size_t>(own_bytes), peer, tag, lane.spans_stages());
  }
  for (int step = 1; step < size; ++step) {
    const int peer = (rank + step) % size;
    const IndexRange theirs = bucket.slice(peer);
    place.messages.send(place.values.data(bucket) + (theirs.begin - bucket.offset) * wire_bytes_,
                        static_cast<std::size_t>(theirs.size() * wire_bytes_), peer, tag, lane.spans_stages());
  }
}

template <class S>
void GradientReducer<S>::distribute(Lane& lane, Place& place) {
  const Region region("espalier::parallel::gradient_reducer::distribute");
  const Bucket& bucket = bucket_of(lane, place.bucket);
  const Communicator& peers = lane.communicator;
  const IndexRange own = bucket.slice(peers.rank());
  place.received_mpi.store(lane.exec, 0, own.size() * (peers.size() - 1) * wire_bytes_);
  place.values.add(lane.exec, bucket, place.received, peers.rank(), peers.size());
  if (zero_stage_ == 0) {
    place.values.load(lane.exec, bucket, own);
    return send_round(lane, place, place.values.data(bucket), wire_bytes_);
  }
  place.values.settle(lane.exec, bucket, own);
  settle_before_messages(lane.communicator, lane.exec, "espalier::parallel: the place may receive again");
  finish(lane, place);
}

/// Our slice goes to all others of the communicator, and theirs come: of an array with `element_bytes` for each element
/// of the bucket, which begins at `bucket_data`.
template <class S>
void GradientReducer<S>::send_round(Lane& lane, Place& place, unsigned char* bucket_data, Index element_bytes) {
  place.stage = Stage::distributing;
  const Bucket& bucket = bucket_of(lane, place.bucket);
  const int rank = lane.communicator.rank();
  const int size = lane.communicator.size();
  const int tag = num_phases * place.bucket + (pass_ == Pass::reduce ? sums_phase : weights_phase);
  const auto start_of = [&](const IndexRange& range) {
    return bucket_data + (range.begin - bucket.offset) * element_bytes;
  };
  const auto bytes_of = [&](const IndexRange& range) { return static_cast<std::size_t>(range.size() * element_bytes); };
  const IndexRange own = bucket.slice(rank);
  for (int step = 1; step < size; ++step) {
    const int peer = (rank - step + size) % size;
    const IndexRange theirs = bucket.slice(peer);
    place.messages.receive(start_of(theirs), bytes_of(theirs), peer, tag);
  }
  for (int step = 1; step < size; ++step)
    place.messages.send(start_of(own), bytes_of(own), (rank + step) % size, tag);
}

template <class S>
void GradientReducer<S>::gather(Lane& lane, Place& place) {
  const Bucket& bucket = bucket_of(lane, place.bucket);
  const IndexRange own = bucket.slice(lane.communicator.rank());
  weights_mpi_.load(lane.exec, own.begin * weight_bytes_, own.size() * weight_bytes_);
  send_round(lane, place, weights_mpi_.data() + bucket.offset * weight_bytes_, weight_bytes_);
}

template <class S>
void GradientReducer<S>::finish(Lane& lane, Place& place) {
  const Bucket& bucket = bucket_of(lane, place.bucket);
  if (pass_ == Pass::gather)
    weights_mpi_.store(lane.exec, bucket.offset * weight_bytes_, bucket.size * weight_bytes_);
  else if (zero_stage_ == 0)
    place.values.store(lane.exec, bucket);
  place.stage = Stage::idle;
  ++lane.num_done;
  Timeline& timeline = lane.communicator.timeline();
  if (timeline.is_on() && lane.communicator.device_link() == nullptr)  // else it has only begun
    timeline.record({.name = fmt::format("{} bucket {} of {}", pass_ == Pass::reduce ? "reduce" : "gather",
                                         place.bucket, lane.communicator.name()),
                     .category = "data_comm",
                     .begin = place.began,
                     .end = lane.communicator.clock().now(),
                     .track = communication_track});
}

template <class S>
void GradientReducer<S>::start_gather_of(const Tensor<unsigned char, 1>& weights, Index element_bytes) {
  if (zero_stage_ == 0 || lanes_.empty())
    return;
  ESPALIER_ASSERT(pass_ == Pass::reduce && all_done(), "start_gather() before wait()");
  ESPALIER_ASSERT(weights.extent(0) == gradients_.extent(0) * static_cast<std::size_t>(element_bytes),
                  "weights are not laid out as the gradients");
  if (weights.data() != weights_.data() || weights.extent(0) != weights_.extent(0)) {  // the first time
    weights_ = weights;
    weights_mpi_ = MpiBuffer<unsigned char>(lanes_.front().communicator, weights_);
  }
  weight_bytes_ = element_bytes;
  begin_pass(Pass::gather);
  progress();
}

// The rest of the members is in gradient_reducer_wait.cpp.
template class GradientReducer<float>;
template class GradientReducer<double>;

}  // namespace espalier
