// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/reduction/gradient_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/region.hpp"
#include "parallel/device/device_stream.hpp"

namespace espalier {

template <class S>
GradientReducer<S>::GradientReducer(const ExecSpace& exec, const ReductionCommunicators& communicators,
                                    const FlatStorage<S>& gradients, std::vector<Segment> segments,
                                    const std::vector<Parameter>& parameters, const ReducerOptions& options)
    : exec_(exec), segments_(std::move(segments)), zero_stage_(options.zero_stage) {
  const GroupRanks ranks = communicators.ranks();
  ESPALIER_ASSERT(zero_stage_ >= 0 && zero_stage_ <= 3, fmt::format("there is no ZeRO stage {}", zero_stage_));
  plan_ = plan_reduction(segments_, parameters, ranks, options, static_cast<Index>(sizeof(S)));
  ESPALIER_ASSERT(plan_.units == gradients.units(), "the gradients have other units than the plan of their reduction");
  arrays_.storage = gradients;
  for (const ReductionCommunicators::Entry& entry : communicators.entries) {
    const GroupRank& ours = ranks.at(entry.key);
    ESPALIER_ASSERT(ours.second_size == 1 || (ours.size > 1 && (zero_stage_ > 0 || !ours.is_hybrid_sharded)),
                    "hybrid sharding without ZeRO");
    if (ours.communicator_key != entry.key || ours.size == 1)
      continue;
    Group& first = add_group(*entry.communicator, entry.key, nullptr, options);
    if (ours.second_size == 1)
      continue;
    first.is_sharded_over_both_levels = ours.is_sharded_over_both_levels();
    first.second_level = &add_group(*entry.second_level, entry.key, &first, options);
  }
  begin_step();
}

template <class S>
typename GradientReducer<S>::Group& GradientReducer<S>::add_group(const Communicator& communicator, const GroupKey& key,
                                                                  Group* first_level, const ReducerOptions& options) {
  const bool is_second = first_level != nullptr;
  const bool gathers_sums = zero_stage_ == 0 || (is_second && !first_level->is_sharded_over_both_levels);
  Group& group = groups_.emplace_back(BucketGroup(
      communicator, "gradients", key, is_second ? plan_.second_level_buckets : plan_.buckets, exec_, gathers_sums));
  group.first_level = first_level;
  const bool crosses_stages_at_this_level = is_second == !plan_.second_level_buckets.empty();  // the last level
  group.spans_stages = key.tied && crosses_stages_at_this_level;
  if (groups_.size() == 1)
    arrays_ = GradientArrays<S>(group.communicator, arrays_.storage);
  group.require_same_buckets({zero_stage_, WireValues<S>::element_bytes(options.wire)});
  for (Index i = 0; i < options.in_flight(std::ssize(group.buckets)); ++i)
    group.idle.emplace_back(group, arrays_, options.wire, fmt::format("{}_{}", communicator.name(), i));
  return group;
}

template <class S>
bool GradientReducer<S>::all_done() const {
  return std::all_of(groups_.begin(), groups_.end(), [this](const Group& group) {
    const bool has_begun = pass_ == Pass::gather || group.first_level || group.num_marked == group.buckets.size();
    return has_begun && group.is_idle();
  });
}

template <class S>
void GradientReducer<S>::begin_step() {
  ESPALIER_ASSERT(std::all_of(groups_.begin(), groups_.end(), [](const Group& group) { return group.is_idle(); }),
                  "begin_step() while buckets are in flight: call wait() first");
  pass_ = Pass::reduce;
  others_sent_at_ = bubble_seconds_ = 0;
  for (Group& group : groups_) {
    group.num_marked = 0;
    group.is_second_level_done.assign(group.buckets.size(), 0);
    group.traffic_before = group.traffic();
  }
  marked_.clear();
  for (const Segment& segment : segments_)
    marked_.push_back(arrays_.storage.unit_of(segment.offset) >= 0);
  unit_sums_.assign(static_cast<std::size_t>(arrays_.storage.num_buffers()), {});
  num_sums_.assign(plan_.units.size(), 0);
}

template <class S>
void GradientReducer<S>::mark_ready(int segment) {
  if (groups_.empty())
    return;
  ESPALIER_ASSERT(!is_marked(segment),
                  fmt::format("segment {} was marked twice in one step, after wait(), or is in a unit", segment));
  marked_[static_cast<std::size_t>(segment)] = 1;
  progress();
}

template <class S>
void GradientReducer<S>::reduce(int unit, bool is_last) {
  if (groups_.empty())
    return;
  UnitSum& sum = sum_of(unit);
  ESPALIER_ASSERT(sum.buckets == 0,
                  fmt::format("unit {} was written before the last sum of its buffer was done", unit));
  sum = UnitSum{.is_last = is_last, .began = groups_.front().communicator.clock().now()};
  ++num_sums_[static_cast<std::size_t>(unit)];
  for (Group& group : groups_)
    for (std::size_t i = 0; i < group.buckets.size() && group.first_level == nullptr; ++i)
      if (group.buckets[i]->unit == unit) {
        ++sum.buckets;
        group.ready.push_back(i);
      }
  progress();
}

template <class S>
void GradientReducer<S>::progress() {
  for (Index before = -1; before != num_done_;) {  // what one level has done, the other goes on with
    before = num_done_;
    for (Group& group : groups_)
      progress(group);
  }
}

template <class S>
void GradientReducer<S>::progress(Group& group) {
  for (auto next = group.in_flight.begin(); next != group.in_flight.end();)
    advance(group, next++);  // which may end it
  collect_ready(group);
  const auto may_start = [&](std::size_t number) {  // weights come from the second level first
    return pass_ == Pass::reduce || !group.is_sharded_over_both_levels || group.is_second_level_done[number] != 0;
  };
  while (!group.ready.empty() && !group.idle.empty() && may_start(group.ready.front()))
    start(group);
}

/// Those outside of units whose gradients are all final are ready, up to the first that has one missing.
template <class S>
void GradientReducer<S>::collect_ready(Group& group) {
  if (pass_ == Pass::gather || group.first_level)
    return;
  for (; group.num_marked < group.buckets.size(); ++group.num_marked) {
    const Bucket& bucket = *group.buckets[group.num_marked];
    if (!std::all_of(marked_.begin() + bucket.first_segment, marked_.begin() + bucket.last_segment + 1,
                     [](char is_marked) { return is_marked != 0; }))
      return;
    if (bucket.unit < 0)
      group.ready.push_back(group.num_marked);
  }
}

template <class S>
void GradientReducer<S>::start(Group& group) {
  const Region region("espalier::parallel::gradient_reducer::start");
  const std::size_t number = group.ready.front();
  group.ready.pop_front();
  if (group.buckets[number]->size == 0)  // a slice of the first level
    return finish_bucket(group, number);
  const InFlight exchange = group.idle.begin();
  group.in_flight.splice(group.in_flight.end(), group.idle, exchange);
  order_after(group.exec, exec_);
  if (pass_ == Pass::reduce) {
    exchange->scatter_values(number);
  } else {
    if (group.is_sharded_over_both_levels)
      order_after(group.exec, group.second_level->exec);  // by which our slice has come
    exchange->gather_weights(number, weights_mpi_, group.weight_offsets[number], weight_bytes_);
  }
  advance(group, exchange);  // what is enqueued is through at once: in the order of the buckets on all ranks
}

template <class S>
void GradientReducer<S>::advance(Group& group, InFlight exchange) {
  const auto is_next = [&] {  // have those before it left this state?
    return std::none_of(group.in_flight.begin(), exchange,
                        [&](const Exchange& before) { return before.state() == exchange->state(); });
  };
  if (exchange->state() == State::values && exchange->test() && is_next())
    sum(group, exchange);
  if (exchange->state() == State::second_level && is_next() && group.is_second_level_done[exchange->number()] != 0) {
    order_after(group.exec, group.second_level->exec);
    exchange->gather_sums();
  }
  if ((exchange->state() == State::sums || exchange->state() == State::weights) && exchange->test())
    finish(group, exchange);
}

/// The values of all ranks have come. Our slice may then go to the second level: of a unit in a replicate group only
/// after the last micro-batch.
template <class S>
void GradientReducer<S>::sum(Group& group, InFlight exchange) {
  const Region region("espalier::parallel::gradient_reducer::sum");
  if (group.spans_stages)
    others_sent_at_ = std::max(others_sent_at_, exchange->sent_at());
  exchange->add();
  if (group.gathers_sums && !group.is_sharded_over_both_levels)
    return exchange->gather_sums();
  exchange->unpack_own_sum();
  const int unit = exchange->bucket().unit;
  if (unit >= 0 && !group.is_sharded_over_both_levels)
    exchange->add_to_shard(num_sums_[static_cast<std::size_t>(unit)] == 1);
  fence_before_messages(group.communicator, group.exec, "espalier::parallel: its buffer may receive again");
  if (group.second_level != nullptr && (group.is_sharded_over_both_levels || unit < 0 || sum_of(unit).is_last)) {
    order_after(group.second_level->exec, group.exec);
    group.second_level->ready.push_back(exchange->number());
  }
  if (group.gathers_sums)
    exchange->enter_second_level();
  else
    finish(group, exchange);
}

template <class S>
void GradientReducer<S>::finish(Group& group, InFlight exchange) {
  const Bucket& bucket = exchange->bucket();
  if (pass_ == Pass::gather)
    weights_mpi_.store(group.exec, group.weight_offsets[exchange->number()], bucket.size * weight_bytes_);
  else if (group.gathers_sums)
    exchange->unpack_all_sums();
  if (pass_ == Pass::gather || bucket.unit < 0)
    record(group,
           fmt::format("{} bucket {} of {}", pass_ == Pass::reduce ? "reduce" : "gather", exchange->number(),
                       group.communicator.name()),
           exchange->began());
  exchange->finish();
  group.idle.splice(group.idle.end(), group.in_flight, exchange);
  finish_bucket(group, exchange->number());
}

/// This level is done with the bucket, which may have been empty.
template <class S>
void GradientReducer<S>::finish_bucket(Group& group, std::size_t number) {
  ++num_done_;
  if (group.first_level)
    group.first_level->is_second_level_done[number] = 1;
  const int unit = group.buckets[number]->unit;
  if (pass_ == Pass::reduce && unit >= 0 && !group.is_sharded_over_both_levels && --sum_of(unit).buckets == 0)
    record(group, fmt::format("reduce layer {}", unit), sum_of(unit).began);
}

template <class S>
void GradientReducer<S>::record(const Group& group, const std::string& what, double began) const {
  const Communicator& communicator = group.communicator;
  if (communicator.device_link() == nullptr)  // else it has only begun
    communicator.observers().spent({.what = what,
                                    .phase = Phase::data_comm,
                                    .begin = began,
                                    .end = communicator.clock().now(),
                                    .in_background = true});
}

template <class S>
void GradientReducer<S>::wait() {
  if (groups_.empty())
    return;
  const Region region("espalier::parallel::gradient_reducer::wait");
  std::fill(marked_.begin(), marked_.end(), 1);
  complete("wait for gradients");
  ESPALIER_ASSERT(std::ranges::all_of(unit_sums_, [](const UnitSum& sum) { return sum.buckets == 0; }),
                  "all buckets are done, but not all of a layer's");
  for (const Bucket& bucket : plan_.buckets)
    ESPALIER_ASSERT(bucket.unit < 0 || num_sums_[static_cast<std::size_t>(bucket.unit)] > 0,
                    "a layer's gradients were not marked in this step");
}

template <class S>
void GradientReducer<S>::gather_bytes(const Tensor<unsigned char, 1>& weights, Index element_bytes,
                                      const std::function<Index(Index element)>& offset_of) {
  if (zero_stage_ == 0 || groups_.empty())
    return;
  const Region region("espalier::parallel::gradient_reducer::gather");
  ESPALIER_ASSERT(pass_ == Pass::reduce && all_done(), "gather_updated_weights() before wait()");
  if (weights.data() != weights_.data() || weights.extent(0) != weights_.extent(0)) {  // the first time
    weights_ = weights;
    weights_mpi_ = MpiBuffer<unsigned char>(groups_.front().communicator, weights_);
    for (Group& group : groups_)
      for (Exchange& exchange : group.idle)
        exchange.keep(std::pair(weights_, weights_mpi_));
  }
  weight_bytes_ = element_bytes;
  pass_ = Pass::gather;
  for (Group& group : groups_) {
    group.is_second_level_done.assign(group.buckets.size(), 0);
    group.weight_offsets.assign(group.buckets.size(), -1);
    const bool is_replicate_group = group.first_level != nullptr && !group.first_level->is_sharded_over_both_levels;
    for (std::size_t i = 0; i < group.buckets.size() && !is_replicate_group; ++i) {
      const Index whole = (group.first_level ? group.first_level : &group)->buckets[i]->offset;
      const Index offset = offset_of(whole);
      if (offset < 0)
        continue;
      group.weight_offsets[i] = (offset + group.buckets[i]->offset - whole) * element_bytes;
      group.ready.push_back(i);
    }
  }
  complete("wait for weights");
}

template <class S>
void GradientReducer<S>::complete(const char* what) {
  const Communicator& communicator = groups_.front().communicator;
  const double began = communicator.clock().now();
  wait_until([this] { return all_done(); });
  if (communicator.device_link() != nullptr)
    compat::fence(exec_, "espalier::parallel: what is exposed of the reduction is its time, not that of what follows");
  const double ended = communicator.clock().now();
  // Before the other stage has sent its part this is waiting for its work; after it, for the network.
  const double bubble_until = pass_ == Pass::reduce ? std::clamp(others_sent_at_, began, ended) : began;
  bubble_seconds_ += bubble_until - began;
  communicator.observers().spent({.what = what, .phase = Phase::bubble, .begin = began, .end = bubble_until});
  communicator.observers().spent({.what = what, .phase = Phase::data_comm, .begin = bubble_until, .end = ended});
}

template <class S>
void GradientReducer<S>::wait_for_buffer(int unit, const std::function<void()>& meanwhile) {
  if (groups_.empty())
    return;
  wait_until([&] { return sum_of(unit).buckets == 0; }, meanwhile);
}

template <class S>
void GradientReducer<S>::wait_until(const std::function<bool()>& is_done, const std::function<void()>& meanwhile) {
  const Communicator& communicator = groups_.front().communicator;
  const WaitSettings& settings = communicator.context().wait;
  Waiter waiter(settings);  // the deadline is that of one bucket
  WaitNote note;
  Index done_before = -1;
  for (progress(); !is_done(); progress()) {
    if (num_done_ != done_before) {
      done_before = num_done_;
      waiter = Waiter(settings);
      note = WaitNote();
    }
    note.update(oldest().messages(), waiter.seconds(), [this] { return oldest().describe(); });
    if (meanwhile)
      meanwhile();
    if (!waiter.pause())
      oldest().messages().give_up(oldest().describe(), waiter.seconds());
  }
  communicator.observers().wait_ends();
  for (const Group& group : groups_)
    order_after(exec_, group.exec);
}

template <class S>
const BucketExchange<S>& GradientReducer<S>::oldest() const {
  const Exchange* oldest = nullptr;
  for (const Group& group : groups_)
    for (const Exchange& exchange : group.in_flight)
      if (exchange.state() != State::second_level && (oldest == nullptr || exchange.began() < oldest->began()))
        oldest = &exchange;
  ESPALIER_ASSERT(oldest != nullptr, "nothing is in flight, and not all is done");
  return *oldest;
}

template <class S>
std::map<GroupKey, Traffic> GradientReducer<S>::traffic() const {
  std::map<GroupKey, Traffic> traffic;
  for (const Group& group : groups_) {
    Traffic& of_group = traffic[group.key];  // of both levels
    of_group.bytes += group.traffic().bytes - group.traffic_before.bytes;
    of_group.messages += group.traffic().messages - group.traffic_before.messages;
  }
  return traffic;
}

#define ESPALIER_INSTANTIATE(S) template class GradientReducer<S>;
ESPALIER_FOR_STATE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
