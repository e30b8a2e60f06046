// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/region.hpp"
#include "parallel/collectives.hpp"
#include "parallel/device_stream.hpp"
#include "parallel/rank_order.hpp"

namespace espalier {
namespace {

// Tags, on communicators of our own: num_message_phases x (number of the bucket in its group) + phase.
enum MessagePhase : int { values_phase, sums_phase, weights_phase, num_message_phases };

}  // namespace

template <class S>
GradientReducer<S>::GradientReducer(const ExecSpace& exec, const ReductionCommunicators& communicators,
                                    const FlatStorage<S>& gradients, std::vector<Segment> segments,
                                    const std::vector<Parameter>& parameters, const ReducerOptions& options)
    : exec_(exec),
      segments_(std::move(segments)),
      zero_stage_(options.zero_stage),
      wire_bytes_(WireValues<S>::element_bytes(options.wire)) {
  const GroupRanks ranks = communicators.ranks();
  ESPALIER_ASSERT(zero_stage_ >= 0 && zero_stage_ <= 3, fmt::format("there is no ZeRO stage {}", zero_stage_));
  plan_ = plan_reduction(segments_, parameters, ranks, options, static_cast<Index>(sizeof(S)));
  ESPALIER_ASSERT(plan_.units == gradients.units(), "the gradients have other units than the plan of their reduction");
  arrays_.storage = gradients;
  for (const auto& [key, communicator, copies] : communicators.entries) {
    const GroupRank& ours = ranks.at(key);
    ESPALIER_ASSERT(ours.num_copies == 1 || (ours.size > 1 && zero_stage_ > 0), "copies of what is not sharded");
    if (ours.joins != key || ours.size == 1)
      continue;
    add_group(*communicator, key, false, options);
    if (ours.num_copies > 1)
      add_group(*copies, key, true, options);
  }
  begin_step();
}

template <class S>
void GradientReducer<S>::add_group(const Communicator& communicator, const GroupKey& key, bool is_of_copies,
                                   const ReducerOptions& options) {
  Group group(communicator.duplicate(communicator.name() + " gradients"), key, exec_, is_of_copies);
  group.spans_stages = key.tied && is_of_copies == !plan_.copies.empty();
  group.communicator.open_device_link();
  if (group.communicator.device_link() != nullptr)
    group.exec = make_stream();
  else if (!keeps_slices(group) && communicator.size() > communicator.context().most_direct_ranks)
    group.rounds = communicator.duplicate(communicator.name() + " sums");
  if (groups_.empty())
    arrays_ = GradientArrays<S>(group.communicator, arrays_.storage);
  Index largest_slice = 0;
  Index largest_bucket = 0;
  const std::vector<Bucket>& buckets = is_of_copies ? plan_.copies : plan_.buckets;
  for (std::size_t b = 0; b < buckets.size(); ++b)
    if (buckets[b].group == key) {
      group.buckets.push_back(static_cast<int>(b));
      largest_slice = std::max(largest_slice, buckets[b].slice(communicator.rank()).size());
      largest_bucket = std::max(largest_bucket, buckets[b].size);
    }
  const auto num_buckets = static_cast<int>(group.buckets.size());
  ESPALIER_ASSERT(num_buckets <= tags::largest / num_message_phases, "too many buckets for MPI's tags");
  check_same_plan(group);
  for (int i = 0; i < std::min(std::max(1, options.buckets_in_flight), num_buckets); ++i) {
    const std::string name = fmt::format("{}_{}", communicator.name(), i);
    const auto received = allocate<unsigned char>(Category::communication, "bucket_" + name,
                                                  largest_slice * (communicator.size() - 1) * wire_bytes_);
    DeviceLink* const link = group.communicator.device_link();
    BucketExchange exchange{
        .values_messages = MessageSet(group.communicator, link, group.exec),
        .rounds = MessageSet(group.round_communicator(), link, group.exec),
        .received = received,
        .received_mpi = MpiBuffer<unsigned char>(group.communicator, received),
        .values = WireValues<S>(group.communicator, arrays_, options.wire, "values_" + name, largest_bucket)};
    exchange.values_messages.keep(std::tuple(exchange.received, exchange.received_mpi, exchange.values));
    exchange.rounds.keep(exchange.values);
    group.exchanges.push_back(std::move(exchange));
  }
  groups_.push_back(std::move(group));
}

/// Ranks that cut differently would add unlike elements, or wait for ever.
template <class S>
void GradientReducer<S>::check_same_plan(const Group& group) const {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a, a number at a time
  const auto add = [&](Index value) { hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211u; };
  add(zero_stage_);
  add(wire_bytes_);
  for (int i = 0; i < static_cast<int>(group.buckets.size()); ++i) {
    const Bucket& bucket = bucket_of(group, i);
    add(bucket.size);
    add(bucket.unit);
    for (const Index bound : bucket.bounds)
      add(bound - bucket.offset);
  }
  const auto ours = static_cast<std::int64_t>(hash);
  std::vector<std::int64_t> all(static_cast<std::size_t>(group.communicator.size()));
  all_gather(group.communicator, std::span<std::int64_t>(all), std::span<const std::int64_t>(&ours, 1));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw Error(ExitCode::usage, {.what = "ranks that sum gradients together cut them differently",
                                    .where = fmt::format("communicator {}, parameters of group {}",
                                                         group.communicator.name(), to_string(group.key)),
                                    .got = fmt::format("rank {} other buckets than rank {}",
                                                       group.communicator.world_rank(static_cast<int>(rank)),
                                                       group.communicator.world_rank(0)),
                                    .wanted = "the same number and sizes of buckets",
                                    .todo = "start all ranks with one config and one binary"});
}

template <class S>
bool GradientReducer<S>::all_done() const {
  return std::all_of(groups_.begin(), groups_.end(), [](const Group& group) { return group.all_done(); });
}

template <class S>
void GradientReducer<S>::begin_pass(Pass pass) {
  pass_ = pass;
  for (Group& group : groups_)
    group.num_looked_at = 0;
}

template <class S>
void GradientReducer<S>::begin_step() {
  const bool idle = std::all_of(groups_.begin(), groups_.end(), [this](const Group& group) {
    return pass_ == Pass::gather ? group.all_done() : group.is_idle();
  });
  ESPALIER_ASSERT(idle, "begin_step() while buckets are in flight: call wait(), and wait_gather(), first");
  begin_pass(Pass::reduce);
  exposed_seconds_ = early_seconds_ = 0;
  for (Group& group : groups_) {
    group.traffic_before = group.traffic();
    group.sent_at = 0;
  }
  marked_.clear();
  for (const Segment& segment : segments_)
    marked_.push_back(arrays_.storage.unit_of(segment.offset) >= 0);
  missing_.resize(plan_.buckets.size());
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    missing_[b] = plan_.buckets[b].last_segment - plan_.buckets[b].first_segment + 1;
  unit_sums_.assign(static_cast<std::size_t>(arrays_.storage.num_buffers()), {});
  summed_.assign(plan_.buckets.size(), 0);
}

template <class S>
void GradientReducer<S>::mark_ready(int segment) {
  if (groups_.empty())
    return;
  ESPALIER_ASSERT(!is_marked(segment),
                  fmt::format("segment {} was marked twice in one step, after wait(), or is in a unit", segment));
  marked_[static_cast<std::size_t>(segment)] = 1;
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    if (const Bucket& bucket = plan_.buckets[b]; bucket.first_segment <= segment && segment <= bucket.last_segment)
      --missing_[b];
  progress();
}

template <class S>
void GradientReducer<S>::reduce(int unit, bool is_last) {
  if (groups_.empty())
    return;
  UnitSum& sum = unit_sums_[buffer_of(unit)];
  ESPALIER_ASSERT(sum.buckets == 0,
                  fmt::format("unit {} was written before the last sum of its buffer was done", unit));
  sum = {.is_last = is_last, .began = groups_.front().communicator.clock().now()};
  for (Group& group : groups_)
    for (int i = 0; !group.is_of_copies && i < static_cast<int>(group.buckets.size()); ++i)
      if (bucket_of(group, i).unit == unit) {
        ++sum.buckets;
        group.ready.push_back(i);
      }
  progress();
}

template <class S>
void GradientReducer<S>::progress() {
  for (Group& group : groups_)
    progress(group);
}

template <class S>
void GradientReducer<S>::progress(Group& group) {
  for (int before = -1; before != group.num_distributed;) {  // those that come behind may have waited for it
    before = group.num_distributed;
    for (BucketExchange& exchange : group.exchanges)
      advance(group, exchange);
  }
  look_for_ready(group);
  const auto is_idle = [](const BucketExchange& exchange) { return exchange.stage == Stage::idle; };
  while (!group.ready.empty()) {
    const auto exchange = std::find_if(group.exchanges.begin(), group.exchanges.end(), is_idle);
    if (exchange == group.exchanges.end())
      return;
    start(group, *exchange);
    advance(group, *exchange);  // what is enqueued is through at once: in the order of the buckets on all ranks
  }
}

/// What comes in the order of the plan: weights, and gradients outside of units, whose buckets mark_ready() adds.
template <class S>
void GradientReducer<S>::look_for_ready(Group& group) {
  if (group.is_of_copies) {  // sum_copies() adds them
    if (pass_ == Pass::gather)
      group.num_looked_at = group.buckets.size();
    return;
  }
  for (; group.num_looked_at < group.buckets.size(); ++group.num_looked_at) {
    const auto b = static_cast<std::size_t>(group.buckets[group.num_looked_at]);
    const bool is_of_unit = plan_.buckets[b].unit >= 0;
    if (pass_ == Pass::reduce && !is_of_unit && missing_[b] > 0)
      return;
    if (pass_ == Pass::reduce ? !is_of_unit : weight_places_[b] >= 0)
      group.ready.push_back(static_cast<int>(group.num_looked_at));
  }
}

template <class S>
void GradientReducer<S>::advance(Group& group, BucketExchange& exchange) {
  if (exchange.stage == Stage::collecting && exchange.values_messages.test() &&
      exchange.number == group.num_distributed) {
    group.sent_at = std::max(group.sent_at, exchange.values_messages.sent_at());
    ++group.num_distributed;
    distribute(group, exchange);
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
  exchange.values.pack(group.exec, bucket);
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
  if (!keeps_slices(group)) {
    exchange.values.load(group.exec, bucket, own);
    return send_round(group, exchange, exchange.values.data(bucket), wire_bytes_);
  }
  exchange.values.settle(group.exec, bucket, own);
  if (bucket.unit >= 0) {
    char& summed = summed_[static_cast<std::size_t>(group.buckets[static_cast<std::size_t>(exchange.bucket)])];
    exchange.values.accumulate(group.exec, bucket, own, summed == 0);
    summed = 1;
  }
  settle_before_messages(group.communicator, group.exec, "espalier::parallel: its buffer may receive again");
  sum_copies(group, exchange);
  finish(group, exchange);
}

/// The second level of a sum: our slice of the bucket is that of our copy now, if no micro-batch follows.
template <class S>
void GradientReducer<S>::sum_copies(const Group& group, const BucketExchange& exchange) {
  const Bucket& bucket = bucket_of(group, exchange.bucket);
  if (plan_.copies.empty() || (bucket.unit >= 0 && !unit_sums_[buffer_of(bucket.unit)].is_last))
    return;
  for (Group& copies : groups_)
    if (copies.is_of_copies && copies.key == group.key) {
      ++copies.num_looked_at;
      if (bucket_of(copies, exchange.bucket).size == 0)
        continue;
      order_after(copies.exec, group.exec);
      copies.ready.push_back(exchange.bucket);
    }
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
  } else if (bucket.unit >= 0) {
    UnitSum& sum = unit_sums_[buffer_of(bucket.unit)];
    is_whole = --sum.buckets == 0;
    began = sum.began;
    what = fmt::format("reduce layer {}", bucket.unit);
  }
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

template <class S>
void GradientReducer<S>::start_gather_of(const Tensor<unsigned char, 1>& weights, Index element_bytes) {
  if (zero_stage_ == 0 || groups_.empty())
    return;
  ESPALIER_ASSERT(pass_ == Pass::reduce && all_done(), "start_gather() before wait()");
  if (weights.data() != weights_.data() || weights.extent(0) != weights_.extent(0)) {  // the first time
    weights_ = weights;
    weights_mpi_ = MpiBuffer<unsigned char>(groups_.front().communicator, weights_);
    for (Group& group : groups_)
      for (BucketExchange& exchange : group.exchanges)
        exchange.rounds.keep(std::pair(weights_, weights_mpi_));
  }
  weight_bytes_ = element_bytes;
  begin_pass(Pass::gather);
  progress();
}

// The rest of the members is in gradient_reducer_wait.cpp.
template class GradientReducer<float>;
template class GradientReducer<double>;

}  // namespace espalier
