// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Of the gradient reducer what waits, and what is told of it: how long, for whom, and what was sent.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/region.hpp"
#include "parallel/device/device_stream.hpp"
#include "parallel/reduction/gradient_reducer.hpp"

namespace espalier {

template <class S>
Index GradientReducer<S>::num_done() const {
  Index sum = 0;
  for (const Group& group : groups_)
    sum += group.num_done;
  return sum;
}

template <class S>
void GradientReducer<S>::wait() {
  if (groups_.empty() || pass_ == Pass::gather)
    return;
  const Region region("espalier::parallel::gradient_reducer::wait");
  std::fill(marked_.begin(), marked_.end(), 1);
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    if (plan_.buckets[b].unit < 0)
      missing_[b] = 0;
  complete("wait for gradients");
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b)
    ESPALIER_ASSERT(plan_.buckets[b].unit < 0 || summed_[b] != 0, "a layer's gradients were not marked in this step");
}

template <class S>
void GradientReducer<S>::wait_gather() {
  if (groups_.empty() || pass_ == Pass::reduce)
    return;
  const Region region("espalier::parallel::gradient_reducer::wait_gather");
  complete("wait for weights");
}

template <class S>
void GradientReducer<S>::complete(const char* what) {
  const Communicator& communicator = groups_.front().communicator;
  const double began = communicator.clock().now();
  const Waiter total(communicator.context().wait);  // the time exposed
  wait_until([this] { return all_done(); });
  if (communicator.device_link() != nullptr)
    compat::fence(exec_, "espalier::parallel: what is exposed of the reduction is its time, not that of what follows");
  exposed_seconds_ += total.seconds();
  const double ended = communicator.clock().now();
  const double early_until = pass_ == Pass::reduce ? std::clamp(others_sent_at(), began, ended) : began;
  early_seconds_ += early_until - began;
  communicator.observers().spent({.what = what, .phase = Phase::bubble, .begin = began, .end = early_until});
  communicator.observers().spent({.what = what, .phase = Phase::data_comm, .begin = early_until, .end = ended});
}

template <class S>
void GradientReducer<S>::wait_for_buffer(int unit, const std::function<void()>& meanwhile) {
  if (groups_.empty())
    return;
  wait_until([&] { return unit_sums_[buffer_of(unit)].buckets == 0; }, meanwhile);
}

template <class S>
void GradientReducer<S>::wait_until(const std::function<bool()>& is_done, const std::function<void()>& meanwhile) {
  const Communicator& communicator = groups_.front().communicator;
  const WaitSettings& settings = communicator.context().wait;
  Waiter waiter(settings);  // the deadline is that of one bucket
  WaitNote note;
  Index done_before = -1;
  for (progress(); !is_done(); progress()) {
    if (num_done() != done_before) {
      done_before = num_done();
      waiter = Waiter(settings);
      note = WaitNote();
    }
    note.update(messages_of(oldest()), waiter.seconds(), [this] { return describe(oldest()); });
    if (meanwhile)
      meanwhile();
    if (!waiter.pause())
      messages_of(oldest()).give_up(describe(oldest()), waiter.seconds());
  }
  communicator.observers().wait_ends();
  for (const Group& group : groups_)
    order_after(exec_, group.exec);
}

/// What goes on before the other stage has sent its part is waiting for its work; what goes on after it, for the
/// network.
template <class S>
double GradientReducer<S>::others_sent_at() const {
  double latest = 0;
  for (const Group& group : groups_)
    if (group.spans_stages)
      latest = std::max(latest, group.sent_at);
  return latest;
}

template <class S>
const typename GradientReducer<S>::BucketExchange& GradientReducer<S>::oldest() const {
  const BucketExchange* oldest = nullptr;
  for (const Group& group : groups_)
    for (const BucketExchange& exchange : group.exchanges)
      if (exchange.stage != Stage::idle && exchange.stage != Stage::second_level &&
          (oldest == nullptr || exchange.began < oldest->began))
        oldest = &exchange;
  ESPALIER_ASSERT(oldest != nullptr, "nothing is in flight, and not all is done");
  return *oldest;
}

template <class S>
std::string GradientReducer<S>::describe(const BucketExchange& exchange) const {
  const char* const what = pass_ == Pass::gather ? "weights" : exchange.stage == Stage::collecting ? "values" : "sums";
  std::size_t num_buckets = 0;
  for (const Group& group : groups_)
    if (std::any_of(group.exchanges.begin(), group.exchanges.end(),
                    [&](const BucketExchange& other) { return &other == &exchange; }))
      num_buckets = group.buckets.size();
  return fmt::format("the {} of gradient bucket {} of {}", what, exchange.bucket, num_buckets);
}

template <class S>
ReducerStats GradientReducer<S>::stats() const {
  ReducerStats stats;
  stats.exposed_seconds = exposed_seconds_;
  stats.early_seconds = early_seconds_;
  for (const Group& group : groups_) {
    const std::uint64_t bytes = group.traffic().bytes - group.traffic_before.bytes;
    stats.bytes_by_group[group.key] += bytes;
    stats.bytes_sent += bytes;
    stats.messages_sent += group.traffic().messages - group.traffic_before.messages;
  }
  return stats;
}

#define ESPALIER_INSTANTIATE(S)                                                         \
  template void GradientReducer<S>::wait();                                             \
  template void GradientReducer<S>::wait_for_buffer(int, const std::function<void()>&); \
  template void GradientReducer<S>::wait_gather();                                      \
  template ReducerStats GradientReducer<S>::stats() const;
ESPALIER_INSTANTIATE(float)
ESPALIER_INSTANTIATE(double)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
