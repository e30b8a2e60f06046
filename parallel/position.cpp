// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/position.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

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

}  // namespace

PositionWriter& PositionWriter::operator=(const PositionWriter& other) {
  if (this == &other)
    return *this;
  own_ = other.own_;
  place_ = other.place_ == &other.own_ ? &own_ : other.place_;
  return *this;
}

// A reader that finds `writes` odd, or changed while it copied, copies again.
template <class F>
void PositionWriter::write(const F& change) {
  const std::atomic_ref<std::uint32_t> writes(place_->writes);
  writes.store(writes.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  change(*place_);
  place_->alive = system_seconds();
  writes.store(writes.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

void PositionWriter::keep_in(Position* place) {
  Position* const target = place == nullptr ? &own_ : place;
  if (target == place_)
    return;
  const Position known = *place_;
  place_ = target;
  write([&](Position& position) {
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

void PositionWriter::set_step(std::int64_t step) {
  write([&](Position& position) { position.step = step; });
}

void PositionWriter::set_operation(int index, std::string_view text, int chunk, int microbatch) {
  write([&](Position& position) {
    position.operation_index = index;
    position.chunk = chunk;
    position.microbatch = microbatch;
    position.since = system_seconds();
    copy_text(position.operation, text);
  });
}

void PositionWriter::enter_wait(std::string_view what, std::string_view communicator, std::uint64_t sequence,
                                std::span<const int> world_ranks) {
  write([&](Position& position) {
    position.waiting = 1;
    position.sequence = sequence;
    position.since = system_seconds();
    copy_text(position.waits_for, what);
    copy_text(position.communicator, communicator);
    copy_peers(position, world_ranks);
  });
}

void PositionWriter::refresh_peers(std::span<const int> world_ranks) {
  write([&](Position& position) { copy_peers(position, world_ranks); });
}

void PositionWriter::leave_wait() {
  write([](Position& position) {
    position.waiting = 0;
    position.since = system_seconds();
  });
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
