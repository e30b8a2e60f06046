// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/observe/rank_progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace espalier {
namespace {

double system_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <std::size_t N>
void copy_text(std::array<char, N>& to, std::string_view from) {
  const std::size_t length = std::min(N - 1, from.size());
  std::copy_n(from.begin(), length, to.begin());
  to[length] = '\0';
}

void copy_peers(RankProgress& progress, std::span<const int> world_ranks) {
  progress.num_peers = static_cast<std::int32_t>(world_ranks.size());
  std::copy_n(world_ranks.begin(), std::min(world_ranks.size(), progress.peers.size()), progress.peers.begin());
}

// A reader that finds `writes` odd, or changed while it copied, copies again.
template <class F>
void write_to(RankProgress& progress, const F& change) {
  const std::atomic_ref<std::uint32_t> writes(progress.writes);
  writes.store(writes.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  change(progress);
  progress.alive = system_seconds();
  writes.store(writes.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

/// Of the communicator, or a free one; nullptr: there is none.
RankProgress::Collectives* slot_of(RankProgress& progress, std::uint32_t communicator) {
  for (const std::uint32_t wanted : {communicator, 0u})
    for (RankProgress::Collectives& slot : progress.collectives)
      if (slot.communicator == wanted)
        return &slot;
  return nullptr;
}

void write_wait(RankProgress& progress, std::string_view what, std::string_view communicator, std::uint64_t sequence,
                std::span<const int> world_ranks, double seconds) {
  progress.waiting = 1;
  progress.waited_for = {};
  progress.sequence = sequence;
  progress.since = system_seconds() - seconds;
  copy_text(progress.waits_for, what);
  copy_text(progress.communicator, communicator);
  copy_peers(progress, world_ranks);
}

}  // namespace

ProgressWriter& ProgressWriter::operator=(const ProgressWriter& other) {
  if (this == &other)
    return *this;
  own_ = other.own_;
  current_ = other.current_ == &other.own_ ? &own_ : other.current_;
  host_waits_ = other.host_waits_;
  stream_waits_ = other.stream_waits_;
  stream_wait_ = other.stream_wait_;
  return *this;
}

template <class F>
void ProgressWriter::write(const F& change) {
  const std::lock_guard lock(mutex_);
  write_to(*current_, change);
}

void ProgressWriter::keep_in(RankProgress* target) {
  const std::lock_guard lock(mutex_);
  if (target == nullptr)
    target = &own_;
  if (target == current_)
    return;
  const RankProgress known = *std::exchange(current_, target);
  write_to(*target, [&](RankProgress& progress) {
    const std::uint32_t writes = progress.writes;
    progress = known;
    progress.writes = writes;
  });
}

void ProgressWriter::set_rank(int rank, int world_size) {
  write([&](RankProgress& progress) {
    progress.rank = rank;
    progress.world_size = world_size;
    progress.pid = static_cast<std::int32_t>(getpid());
    progress.since = system_seconds();
    gethostname(progress.host.data(), progress.host.size() - 1);
  });
}

void ProgressWriter::step_begins(std::int64_t step) {
  write([&](RankProgress& progress) { progress.step = step; });
}

void ProgressWriter::operation_begins(int index, std::string_view what, int chunk, int microbatch) {
  write([&](RankProgress& progress) {
    progress.operation_index = index;
    progress.chunk = chunk;
    progress.microbatch = microbatch;
    if (progress.waiting == 0)
      progress.since = system_seconds();
    copy_text(progress.operation, what);
  });
}

void ProgressWriter::wait_begins(std::string_view what, std::string_view communicator, std::uint64_t sequence,
                                 std::span<const int> world_ranks) {
  write([&](RankProgress& progress) {
    host_waits_ = true;
    write_wait(progress, what, communicator, sequence, world_ranks, 0);
  });
}

void ProgressWriter::wait_goes_on(std::span<const int> world_ranks) {
  write([&](RankProgress& progress) { copy_peers(progress, world_ranks); });
}

void ProgressWriter::wait_ends() {
  write([&](RankProgress& progress) {
    host_waits_ = false;
    show_wait(progress);
  });
}

void ProgressWriter::collective_begins(std::uint32_t communicator, std::uint64_t number) {
  write([&](RankProgress& progress) {
    RankProgress::Collectives* const slot = slot_of(progress, communicator);
    if (slot != nullptr)  // else there are more communicators than slots
      *slot = {communicator, static_cast<std::uint32_t>(number)};
  });
}

void ProgressWriter::collective_waits(std::uint32_t communicator, std::uint64_t number) {
  write([&](RankProgress& progress) { progress.waited_for = {communicator, static_cast<std::uint32_t>(number)}; });
}

void ProgressWriter::communicator_ends(std::uint32_t communicator) {
  write([&](RankProgress& progress) {
    for (RankProgress::Collectives& slot : progress.collectives)
      if (slot.communicator == communicator)
        slot = {};
  });
}

void ProgressWriter::enter_stream_wait(std::string_view what, std::string_view communicator, std::uint64_t sequence,
                                       std::span<const int> world_ranks, double seconds) {
  write([&](RankProgress& progress) {
    stream_waits_ = true;
    write_wait(stream_wait_, what, communicator, sequence, world_ranks, seconds);
    show_wait(progress);
  });
}

void ProgressWriter::leave_stream_wait() {
  write([&](RankProgress& progress) {
    stream_waits_ = false;
    show_wait(progress);
  });
}

void ProgressWriter::show_life() {
  write([](RankProgress&) {});
}

// The host's wait stands there; without one that of the stream, if there is one.
void ProgressWriter::show_wait(RankProgress& progress) const {
  if (host_waits_ || progress.finished != 0)
    return;
  progress.waiting = stream_waits_ ? 1 : 0;
  progress.since = stream_waits_ ? stream_wait_.since : system_seconds();
  if (!stream_waits_)
    return;
  progress.waited_for = {};
  progress.sequence = stream_wait_.sequence;
  progress.waits_for = stream_wait_.waits_for;
  progress.communicator = stream_wait_.communicator;
  progress.num_peers = stream_wait_.num_peers;
  progress.peers = stream_wait_.peers;
}

void ProgressWriter::mark_finished() {
  write([](RankProgress& progress) {
    progress.waiting = 0;
    progress.finished = 1;
    progress.since = system_seconds();
  });
}

RankProgress read_progress(const RankProgress& shared) {
  // A write takes a fraction of a microsecond, unless its core is taken away meanwhile; a dead writer never ends it.
  constexpr int attempts = 2000;
  constexpr std::chrono::microseconds between_attempts{500};
  RankProgress copy;
  const std::atomic_ref<std::uint32_t> writes(const_cast<RankProgress&>(shared).writes);
  for (int i = 0; i < attempts; ++i) {
    const std::uint32_t before = writes.load(std::memory_order_acquire);
    copy = shared;
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && writes.load(std::memory_order_relaxed) == before)
      break;
    std::this_thread::sleep_for(between_attempts);
  }
  for (auto* text : {copy.host.data(), copy.operation.data(), copy.communicator.data()})
    text[copy.host.size() - 1] = '\0';
  copy.waits_for.back() = '\0';
  return copy;
}

}  // namespace espalier
