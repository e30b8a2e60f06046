// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "tests/support/fake_cuda/clocks.hpp"

namespace fake_cuda {

/// What was done last to each two bytes of an allocation: who wrote them, and who has read them since. An atomic update
/// counts as a write. Two bytes are the least that queues share out among themselves.
class Shadow {
 public:
  explicit Shadow(std::size_t bytes);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  /// Of one thread of a kernel: `bytes` is a power of two of 16 at most, of which `offset` is a multiple. It counts
  /// when the kernel has ended.
  void touch(std::size_t offset, std::size_t bytes, bool writes) {
    const std::size_t word = offset / word_bytes;
    const std::uint64_t bits = (std::uint64_t{1} << (bytes + 1) / 2) - 1;
    (writes ? written_ : read_)[word] |= bits << offset / grain % grains;
    touched_[word / 64] |= std::uint64_t{1} << word % 64;
    has_touched_ = true;
  }
  bool has_touched() const { return has_touched_; }
  /// The kernel has ended. What is a race is told.
  void settle(const std::shared_ptr<const Actor>& actor);

  /// A whole range at once.
  void touch_range(const std::shared_ptr<const Actor>& actor, std::size_t offset, std::size_t bytes, bool writes);

 private:
  static constexpr std::size_t grain = 2, grains = 64, word_bytes = grain * grains;
  using State = std::uint32_t;  // of two bytes, or of all of a word; see shadow.cpp
  struct Parts {
    State of[grains];
  };

  void apply(std::size_t word, std::uint64_t bits, bool writes);
  void forget_unused_states();

  // Pages that nobody touches cost nothing.
  template <class T>
  using Zeros = std::unique_ptr<T[], void (*)(void*)>;

  std::size_t num_words_;
  Zeros<State> states_;
  std::unordered_map<std::size_t, Parts> parts_;  // of words that are not of one state
  // What a kernel has touched so far: a bit for two bytes, and a bit for a word.
  Zeros<std::uint64_t> read_, written_, touched_;
  bool has_touched_ = false;
};

/// Told when a race is found: `now` comes to what `before` has read or written, and nothing orders the two.
struct Race {
  const Actor &before, &now;
  bool before_writes, now_writes;
  const Shadow* shadow;
  std::size_t offset;
};
void tell_race(const Race& race);

}  // namespace fake_cuda
