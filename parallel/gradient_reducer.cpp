// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_reducer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "core/region.hpp"
#include "parallel/rank_order.hpp"

namespace espalier {
namespace {

constexpr int num_phases = 2;  // tags: 2 x bucket + phase, on a communicator of our own
constexpr Index cache_line_elements = 16;

}  // namespace

std::vector<Bucket> make_buckets(const std::vector<Segment>& segments, Index bucket_elements) {
  std::vector<Bucket> buckets;
  for (int s = static_cast<int>(segments.size()) - 1; s >= 0; --s) {
    const Segment& segment = segments[static_cast<std::size_t>(s)];
    for (Index end = segment.offset + segment.size; end > segment.offset;) {
      const bool joins = !buckets.empty() && buckets.back().offset == end && buckets.back().size < bucket_elements &&
                         segments[static_cast<std::size_t>(buckets.back().first_segment)].group == segment.group;
      if (!joins)
        buckets.push_back({.offset = end, .size = 0, .first_segment = s, .last_segment = s});
      Bucket& bucket = buckets.back();
      const Index begin = std::max(segment.offset, end - (bucket_elements - bucket.size));
      bucket.offset = begin;
      bucket.size += end - begin;
      bucket.first_segment = s;
      end = begin;
    }
  }
  return buckets;
}

template <class S>
GradientReducer<S>::GradientReducer(const ExecSpace& exec, const Communicator& communicator,
                                    const Tensor<S, 1>& gradients, std::vector<Segment> segments,
                                    ReducerOptions options)
    : exec_(exec),
      communicator_(communicator.duplicate(communicator.name() + " gradients")),
      gradients_(gradients),
      segments_(std::move(segments)) {
  if (communicator_.size() == 1)
    return;
  gradients_mpi_ = MpiBuffer<S>(gradients_);
  buckets_ = make_buckets(segments_, std::max<Index>(1, options.bucket_bytes / static_cast<Index>(sizeof(S))));
  ESPALIER_ASSERT(static_cast<int>(buckets_.size()) <= tags::largest / num_phases, "too many buckets for MPI's tags");
  Index largest_slice = 0;
  for (const Bucket& bucket : buckets_)
    for (int rank = 0; rank < communicator_.size(); ++rank)
      largest_slice = std::max(largest_slice, slice_size(bucket, rank));
  const int places = std::min(std::max(1, options.buckets_in_flight), static_cast<int>(buckets_.size()));
  for (int i = 0; i < places; ++i) {
    const auto received = allocate<S>(Category::communication, fmt::format("bucket_{}", i),
                                      std::max<Index>(1, largest_slice) * (communicator_.size() - 1));
    places_.push_back({MessageSet(communicator_), Stage::idle, 0, received, MpiBuffer<S>(received)});
  }
  begin_step();
}

template <class S>
Index GradientReducer<S>::slice_begin(const Bucket& bucket, int rank) const {
  const Index slice = (bucket.size + communicator_.size() - 1) / communicator_.size();
  const Index aligned = (slice + cache_line_elements - 1) / cache_line_elements * cache_line_elements;
  return std::min(bucket.size, rank * aligned);
}

template <class S>
void GradientReducer<S>::begin_step() {
  ESPALIER_ASSERT(num_started_ == num_done_, "begin_step() while buckets are in flight: call wait() first");
  num_started_ = 0;
  num_done_ = 0;
  exposed_seconds_ = 0;
  bytes_before_ = communicator_.traffic().bytes;
  marked_.assign(segments_.size(), 0);
  missing_.resize(buckets_.size());
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    missing_[b] = buckets_[b].last_segment - buckets_[b].first_segment + 1;
}

template <class S>
void GradientReducer<S>::mark_ready(int segment) {
  ESPALIER_ASSERT(segment >= 0 && segment < static_cast<int>(segments_.size()),
                  fmt::format("there is no segment {}", segment));
  if (communicator_.size() == 1)
    return;
  ESPALIER_ASSERT(!marked_[static_cast<std::size_t>(segment)],
                  fmt::format("segment {} was marked twice in one step, or after wait()", segment));
  marked_[static_cast<std::size_t>(segment)] = 1;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    if (segment >= buckets_[b].first_segment && segment <= buckets_[b].last_segment)
      --missing_[b];
  progress();
}

template <class S>
void GradientReducer<S>::progress() {
  for (Place& place : places_) {
    if (place.stage == Stage::collecting && place.messages.test())
      distribute(place);
    if (place.stage == Stage::distributing && place.messages.test())
      finish(place);
  }
  for (Place& place : places_) {
    const bool next_is_full =
        num_started_ < static_cast<int>(buckets_.size()) && missing_[static_cast<std::size_t>(num_started_)] == 0;
    if (next_is_full && place.stage == Stage::idle)
      start(place);
  }
}

template <class S>
void GradientReducer<S>::start(Place& place) {
  const Region region("espalier::parallel::gradient_reducer::start");
  place.bucket = num_started_++;
  place.stage = Stage::collecting;
  const Bucket& bucket = buckets_[static_cast<std::size_t>(place.bucket)];
  const int rank = communicator_.rank();
  const int size = communicator_.size();
  const int tag = num_phases * place.bucket;
  const auto own_size = slice_size(bucket, rank);
  gradients_mpi_.load(exec_, bucket.offset, bucket.size);
  for (int step = 1; step < size; ++step) {
    const int peer = (rank - step + size) % size;
    place.messages.receive(place.received_mpi.data() + received_slot(peer, rank) * own_size,
                           static_cast<std::size_t>(own_size) * sizeof(S), peer, tag);
  }
  for (int step = 1; step < size; ++step) {
    const int peer = (rank + step) % size;
    place.messages.send(gradients_mpi_.data() + bucket.offset + slice_begin(bucket, peer),
                        static_cast<std::size_t>(slice_size(bucket, peer)) * sizeof(S), peer, tag);
  }
}

template <class S>
void GradientReducer<S>::distribute(Place& place) {
  const Region region("espalier::parallel::gradient_reducer::distribute");
  place.stage = Stage::distributing;
  const Bucket& bucket = buckets_[static_cast<std::size_t>(place.bucket)];
  const int rank = communicator_.rank();
  const int size = communicator_.size();
  const int tag = num_phases * place.bucket + 1;
  const Index own_begin = bucket.offset + slice_begin(bucket, rank);
  const Index own_size = slice_size(bucket, rank);
  place.received_mpi.store(exec_, 0, own_size * (size - 1));
  combine_in_rank_order(exec_, Tensor<S, 1>(gradients_.data() + own_begin, own_size), place.received, own_size, rank,
                        size, ReduceOp::sum);
  gradients_mpi_.load(exec_, own_begin, own_size);
  for (int step = 1; step < size; ++step) {
    const int peer = (rank - step + size) % size;
    place.messages.receive(gradients_mpi_.data() + bucket.offset + slice_begin(bucket, peer),
                           static_cast<std::size_t>(slice_size(bucket, peer)) * sizeof(S), peer, tag);
  }
  for (int step = 1; step < size; ++step) {
    const int peer = (rank + step) % size;
    place.messages.send(gradients_mpi_.data() + own_begin, static_cast<std::size_t>(own_size) * sizeof(S), peer, tag);
  }
}

template <class S>
void GradientReducer<S>::finish(Place& place) {
  const Bucket& bucket = buckets_[static_cast<std::size_t>(place.bucket)];
  gradients_mpi_.store(exec_, bucket.offset, bucket.size);
  place.stage = Stage::idle;
  ++num_done_;
}

template <class S>
void GradientReducer<S>::wait() {
  if (communicator_.size() == 1)
    return;
  const Region region("espalier::parallel::gradient_reducer::wait");
  std::fill(marked_.begin(), marked_.end(), 1);
  std::fill(missing_.begin(), missing_.end(), 0);
  const Waiter total(communicator_.context().wait);  // the time exposed
  Waiter waiter(communicator_.context().wait);       // the deadline is that of one bucket
  int done_before = num_done_;
  for (progress(); !all_done(); progress()) {
    if (num_done_ != done_before) {
      done_before = num_done_;
      waiter = Waiter(communicator_.context().wait);
    } else if (!waiter.pause()) {
      const auto oldest = std::min_element(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
        return a.stage != Stage::idle && (b.stage == Stage::idle || a.bucket < b.bucket);
      });
      oldest->messages.give_up(
          fmt::format("the {} of gradient bucket {} of {}", oldest->stage == Stage::collecting ? "values" : "sums",
                      oldest->bucket, buckets_.size()),
          waiter.seconds());
    }
  }
  exposed_seconds_ += total.seconds();
}

template <class S>
ReducerStats GradientReducer<S>::stats() const {
  return {.exposed_seconds = exposed_seconds_, .bytes_sent = communicator_.traffic().bytes - bytes_before_};
}

template class GradientReducer<float>;
template class GradientReducer<double>;

}  // namespace espalier
