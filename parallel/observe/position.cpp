// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/observe/position.hpp"

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

void copy_peers(Position& position, std::span<const int> world_ranks) {
  position.num_peers = static_cast<std::int32_t>(world_ranks.size());
  std::copy_n(world_ranks.begin(), std::min(world_ranks.size(), position.peers.size()), position.peers.begin());
}

// A reader that finds `writes` odd, or changed while it copied, copies again.
template <class F>
void write_to(Position& place, const F& change) {
  const std::atomic_ref<std::uint32_t> writes(place.writes);
  writes.store(writes.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  change(place);
  place.alive = system_seconds();
  writes.store(writes.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

/// Of the communicator, or a free one; nullptr: there is none.
Position::Collectives* place_of(Position& position, std::uint32_t communicator) {
  for (const std::uint32_t wanted : {communicator, 0u})
    for (Position::Collectives& place : position.collectives)
      if (place.communicator == wanted)
        return &place;
  return nullptr;
}

void write_wait(Position& position, std::string_view what, std::string_view communicator, std::uint64_t sequence,
                std::span<const int> world_ranks, double seconds) {
  position.waiting = 1;
  position.waited_for = {};
  position.sequence = sequence;
  position.since = system_seconds() - seconds;
  copy_text(position.waits_for, what);
  copy_text(position.communicator, communicator);
  copy_peers(position, world_ranks);
}

}  // namespace

PositionWriter& PositionWriter::operator=(const PositionWriter& other) {
  if (this == &other)
    return *this;
  own_ = other.own_;
  place_ = other.place_ == &other.own_ ? &own_ : other.place_;
  host_waits_ = other.host_waits_;
  stream_waits_ = other.stream_waits_;
  stream_wait_ = other.stream_wait_;
  return *this;
}

template <class F>
void PositionWriter::write(const F& change) {
  const std::lock_guard lock(mutex_);
  write_to(*place_, change);
}

void PositionWriter::keep_in(Position* place) {
  const std::lock_guard lock(mutex_);
  Position* const target = place == nullptr ? &own_ : place;
  if (target == place_)
    return;
  const Position known = *std::exchange(place_, target);
  write_to(*target, [&](Position& position) {
    const std::uint32_t writes = position.writes;
    position = known;
    position.writes = writes;
  });
}

void PositionWriter::set_rank(int rank, int world_size) {
  write([&](Position& position) {
    position.rank = rank;
    position.world_size = world_size;
    position.pid = static_cast<std::int32_t>(getpid());
    position.since = system_seconds();
    gethostname(position.host.data(), position.host.size() - 1);
  });
}

void PositionWriter::step_begins(std::int64_t step) {
  write([&](Position& position) { position.step = step; });
}

void PositionWriter::operation_begins(int index, std::string_view what, int chunk, int microbatch) {
  write([&](Position& position) {
    position.operation_index = index;
    position.chunk = chunk;
    position.microbatch = microbatch;
    if (position.waiting == 0)
      position.since = system_seconds();
    copy_text(position.operation, what);
  });
}

void PositionWriter::wait_begins(std::string_view what, std::string_view communicator, std::uint64_t sequence,
                                 std::span<const int> world_ranks) {
  write([&](Position& position) {
    host_waits_ = true;
    write_wait(position, what, communicator, sequence, world_ranks, 0);
  });
}

void PositionWriter::wait_goes_on(std::span<const int> world_ranks) {
  write([&](Position& position) { copy_peers(position, world_ranks); });
}

void PositionWriter::wait_ends() {
  write([&](Position& position) {
    host_waits_ = false;
    show_wait(position);
  });
}

void PositionWriter::collective_begins(std::uint32_t communicator, std::uint64_t number) {
  write([&](Position& position) {
    Position::Collectives* const place = place_of(position, communicator);
    if (place != nullptr)  // else there are more communicators than places
      *place = {communicator, static_cast<std::uint32_t>(number)};
  });
}

void PositionWriter::collective_waits(std::uint32_t communicator, std::uint64_t number) {
  write([&](Position& position) { position.waited_for = {communicator, static_cast<std::uint32_t>(number)}; });
}

void PositionWriter::communicator_ends(std::uint32_t communicator) {
  write([&](Position& position) {
    for (Position::Collectives& place : position.collectives)
      if (place.communicator == communicator)
        place = {};
  });
}

void PositionWriter::enter_stream_wait(std::string_view what, std::string_view communicator, std::uint64_t sequence,
                                       std::span<const int> world_ranks, double seconds) {
  write([&](Position& position) {
    stream_waits_ = true;
    write_wait(stream_wait_, what, communicator, sequence, world_ranks, seconds);
    show_wait(position);
  });
}

void PositionWriter::leave_stream_wait() {
  write([&](Position& position) {
    stream_waits_ = false;
    show_wait(position);
  });
}

void PositionWriter::show_life() {
  write([](Position&) {});
}

// The host's wait stands there; without one that of the stream, if there is one.
void PositionWriter::show_wait(Position& position) const {
  if (host_waits_ || position.finished != 0)
    return;
  position.waiting = stream_waits_ ? 1 : 0;
  position.since = stream_waits_ ? stream_wait_.since : system_seconds();
  if (!stream_waits_)
    return;
  position.waited_for = {};
  position.sequence = stream_wait_.sequence;
  position.waits_for = stream_wait_.waits_for;
  position.communicator = stream_wait_.communicator;
  position.num_peers = stream_wait_.num_peers;
  position.peers = stream_wait_.peers;
}

void PositionWriter::sign_off() {
  write([](Position& position) {
    position.waiting = 0;
    position.finished = 1;
    position.since = system_seconds();
  });
}

Position read_position(const Position& shared) {
  // A write takes a fraction of a microsecond, unless its core is taken away meanwhile; a dead writer never ends it.
  constexpr int attempts = 2000;
  constexpr std::chrono::microseconds between_attempts{500};
  Position copy;
  const std::atomic_ref<std::uint32_t> writes(const_cast<Position&>(shared).writes);
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
