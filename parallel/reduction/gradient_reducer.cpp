// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/gradient_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/region.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/device/device_stream.hpp"

namespace espalier {

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
  for (const ReductionCommunicators::Entry& entry : communicators.entries) {
    const GroupRank& ours = ranks.at(entry.key);
    ESPALIER_ASSERT(ours.second_size == 1 || (ours.size > 1 && (zero_stage_ > 0 || !ours.has_copies)),
                    "copies of what is not sharded");
    if (ours.joins != entry.key || ours.size == 1)
      continue;
    add_group(*entry.communicator, entry.key, false, options);
    if (ours.second_size > 1)
      add_group(*entry.second, entry.key, true, options);
  }
  begin_step();
}

template <class S>
void GradientReducer<S>::add_group(const Communicator& communicator, const GroupKey& key, bool is_second,
                                   const ReducerOptions& options) {
  Group group(communicator.duplicate(communicator.name() + " gradients"), key, exec_, is_second);
  group.spans_stages = key.tied && is_second == !plan_.second.empty();
  group.communicator.open_device_link();
  if (group.communicator.device_link() != nullptr)
    group.exec = make_stream();
  else if (!keeps_slices(group) && communicator.size() > communicator.context().most_direct_ranks)
    group.rounds = communicator.duplicate(communicator.name() + " sums");
  if (groups_.empty())
    arrays_ = GradientArrays<S>(group.communicator, arrays_.storage);
  Index largest_slice = 0;
  Index largest_bucket = 0;
  const std::vector<Bucket>& buckets = is_second ? plan_.second : plan_.buckets;
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
  returned_.assign(plan_.buckets.size(), 0);
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
    for (int i = 0; !group.is_second && i < static_cast<int>(group.buckets.size()); ++i)
      if (bucket_of(group, i).unit == unit) {
        ++sum.buckets;
        group.ready.push_back(i);
      }
  progress();
}

template <class S>
void GradientReducer<S>::progress() {
  for (Index before = -1; before != num_returned_;) {  // what the second level has done, the first goes on with
    before = num_returned_;
    for (Group& group : groups_)
      progress(group);
  }
}

template <class S>
void GradientReducer<S>::progress(Group& group) {
  const auto num_sums = [&group] { return group.num_distributed + group.num_returned; };
  for (Index before = -1; before != num_sums();) {  // those that come behind may have waited for it
    before = num_sums();
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
  if (group.is_second && pass_ == Pass::reduce)
    return;  // start_second_level() adds them
  if (group.is_second && plan_.has_copies)
    group.num_looked_at = group.buckets.size();
  for (; group.num_looked_at < group.buckets.size(); ++group.num_looked_at) {
    const auto b = static_cast<std::size_t>(group.buckets[group.num_looked_at]);
    const bool is_of_unit = plan_.buckets[b].unit >= 0;
    if (pass_ == Pass::reduce && !is_of_unit && missing_[b] > 0)
      return;
    if (pass_ == Pass::gather && is_continued(group) && weight_places_[b] >= 0 && returned_[b] == 0)
      return;
    if (pass_ == Pass::gather && group.is_second && plan_.second[b].size == 0)
      finish_second_level(b);
    else if (pass_ == Pass::reduce ? !is_of_unit : weight_places_[b] >= 0)
      group.ready.push_back(static_cast<int>(group.num_looked_at));
  }
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

// The rest of the members is in gradient_reducer_bucket.cpp and gradient_reducer_wait.cpp.
template class GradientReducer<float>;
template class GradientReducer<double>;

}  // namespace espalier
