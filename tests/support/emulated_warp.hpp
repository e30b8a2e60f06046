// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ucontext.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/ops/warp_tiles.hpp"

// A block of GPU threads on the host, each a coroutine that runs until it waits for others: what a kernel written over
// a class Warp (core/ops/warp_tiles.hpp) does to memory, without a GPU. Fragments lie as the PTX ISA says; copies
// to shared memory arrive no sooner than they are waited for.

namespace espalier::test {

class EmulatedBlock {
 public:
  static constexpr int threads = warp_tiles::threads;
  using Word = warp_tiles::Word;

  /// body(warp) on every thread of a block, to the end.
  template <class Body>
  static void run(const Body& body);

 private:
  friend class EmulatedWarp;

  struct Thread {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(std::size_t{256} << 10);
    bool done = false;
  };
  // What some threads wait for together.
  struct Meeting {
    int arrived = 0;
    int round = 0;
  };
  struct Lane {  // what a lane shows to the others of its warp
    const void* row = nullptr;
    std::array<Word, 4> a{};
    std::array<Word, 2> b{};
    float value = 0;
  };

  void switch_from(int thread) { swapcontext(&threads_[static_cast<std::size_t>(thread)]->context, &scheduler_); }

  void meet(Meeting& meeting, int size, int thread) {
    const int round = meeting.round;
    if (++meeting.arrived == size) {
      meeting.arrived = 0;
      ++meeting.round;
    }
    while (meeting.round == round)
      switch_from(thread);
  }

  static void start(unsigned low, unsigned high, unsigned thread) {
    const std::uintptr_t address = (std::uintptr_t{high} << 32) | low;
    auto* const block = reinterpret_cast<EmulatedBlock*>(address);
    block->body_(static_cast<int>(thread));
    block->threads_[thread]->done = true;
    block->switch_from(static_cast<int>(thread));
  }

  std::function<void(int)> body_;
  ucontext_t scheduler_{};
  std::array<std::unique_ptr<Thread>, threads> threads_;
  Meeting all_;
  std::array<Meeting, warp_tiles::warps> warps_{};
  std::array<Lane, threads> lanes_{};
};

class EmulatedWarp {
 public:
  using Word = EmulatedBlock::Word;

  EmulatedWarp(EmulatedBlock& block, int thread) : block_(&block), thread_(thread) {}

  int thread() const { return thread_; }
  int index() const { return thread_ / 32; }
  int lane() const { return thread_ % 32; }
  void block_barrier() const { block_->meet(block_->all_, EmulatedBlock::threads, thread_); }

  template <class Value, class T>
  Value load(const T* from) const {
    Value value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  template <class Value, class T>
  void store(T* to, Value value) const {
    std::memcpy(static_cast<void*>(to), &value, sizeof(value));
  }

  template <class T>
  void copy_chunk(T* to, const T* from, bool copies = true) const {
    std::array<char, 16> bytes{};
    if (copies)
      std::memcpy(bytes.data(), from, bytes.size());
    copies_.emplace_back(to, bytes);
  }
  void end_copies() const {}
  void wait_for_copies() const {
    for (const auto& [to, bytes] : copies_)
      std::memcpy(to, bytes.data(), bytes.size());
    copies_.clear();
  }

  template <bool transposed, class T>
  void load_matrices(Word (&m)[4], const T* row) const {
    own().row = row;
    meet();
    for (int i = 0; i < 4; ++i) {
      std::array<T, 2> two;
      for (int part = 0; part < 2; ++part) {
        const int at_row = transposed ? lane() % 4 * 2 + part : lane() / 4;
        const int at_column = transposed ? lane() / 4 : lane() % 4 * 2 + part;
        two[static_cast<std::size_t>(part)] = static_cast<const T*>(of(8 * i + at_row).row)[at_column];
      }
      std::memcpy(&m[i], two.data(), sizeof(Word));
    }
    meet();
  }

  template <class T>
  void multiply_add(float (&c)[4], const Word (&a)[4], Word b0, Word b1) const {
    own().a = {a[0], a[1], a[2], a[3]};
    own().b = {b0, b1};
    meet();
    for (int i = 0; i < 4; ++i) {
      const int row = lane() / 4 + i / 2 * 8;
      const int column = lane() % 4 * 2 + i % 2;
      for (int k = 0; k < 16; ++k) {
        const auto a_word = static_cast<std::size_t>(row / 8 + k / 8 * 2);
        const auto b_word = static_cast<std::size_t>(k / 8);
        c[i] += number<T>(of(row % 8 * 4 + k % 8 / 2).a[a_word], k % 2) *
                number<T>(of(column * 4 + k % 8 / 2).b[b_word], k % 2);
      }
    }
    meet();
  }

  template <class T>
  Word round(float first, float second) const {
    const std::array<T, 2> two = {T(first), T(second)};
    Word word = 0;
    std::memcpy(&word, two.data(), sizeof(word));
    return word;
  }
  template <class T>
  std::pair<float, float> widen(Word word) const {
    return {number<T>(word, 0), number<T>(word, 1)};
  }

  float exp2(float x) const { return std::exp2(x); }
  float log(float x) const { return std::log(x); }
  float largest_of_row(float x) const {
    return over_lanes(x, 4, [](float a, float b) { return std::fmax(a, b); });
  }
  float sum_of_row(float x) const {
    return over_lanes(x, 4, [](float a, float b) { return a + b; });
  }
  float sum_of_warp(float x) const {
    return over_lanes(x, 32, [](float a, float b) { return a + b; });
  }

 private:
  EmulatedBlock::Lane& of(int lane) const { return block_->lanes_[static_cast<std::size_t>(index() * 32 + lane)]; }
  EmulatedBlock::Lane& own() const { return of(lane()); }
  void meet() const { block_->meet(block_->warps_[static_cast<std::size_t>(index())], 32, thread_); }

  template <class T>
  static float number(Word word, int part) {
    std::array<T, 2> two;
    std::memcpy(static_cast<void*>(two.data()), &word, sizeof(word));
    return static_cast<float>(two[static_cast<std::size_t>(part)]);
  }

  // Of the `group` neighbours that this lane belongs to.
  template <class Combine>
  float over_lanes(float x, int group, const Combine& combine) const {
    own().value = x;
    meet();
    const int first = lane() / group * group;
    float result = of(first).value;
    for (int i = 1; i < group; ++i)
      result = combine(result, of(first + i).value);
    meet();
    return result;
  }

  EmulatedBlock* block_;
  int thread_;
  mutable std::vector<std::pair<void*, std::array<char, 16>>> copies_;
};

template <class Body>
void EmulatedBlock::run(const Body& body) {
  EmulatedBlock block;
  block.body_ = [&](int thread) { body(EmulatedWarp(block, thread)); };
  const auto address = reinterpret_cast<std::uintptr_t>(&block);
  for (unsigned i = 0; i < threads; ++i) {
    block.threads_[i] = std::make_unique<Thread>();
    Thread& thread = *block.threads_[i];
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.data();
    thread.context.uc_stack.ss_size = thread.stack.size();
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, reinterpret_cast<void (*)()>(&EmulatedBlock::start), 3,
                static_cast<unsigned>(address & 0xffffffffU), static_cast<unsigned>(address >> 32), i);
  }
  for (bool busy = true; busy;) {
    busy = false;
    for (const std::unique_ptr<Thread>& thread : block.threads_)
      if (!thread->done) {
        swapcontext(&block.scheduler_, &thread->context);
        busy = true;
      }
  }
}

}  // namespace espalier::test
