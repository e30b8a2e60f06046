// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// Runs work on several threads and hands over the results in the order in which it was given, on the thread that gives
/// it. A few pieces a thread are under way at a time, and fewer where they are large.
class OrderedWork {
 public:
  /// @param num_threads 1: all runs on the caller's thread
  explicit OrderedWork(Index num_threads);
  /// What has not begun is dropped.
  ~OrderedWork();
  OrderedWork(const OrderedWork&) = delete;
  OrderedWork& operator=(const OrderedWork&) = delete;

  /// What the pieces under way hold together, but for one that is larger.
  static constexpr std::size_t max_bytes = std::size_t{1} << 27;

  /// `work` runs on any thread, then `finish` on this one, here or in a later call. @param bytes that the piece holds
  /// until then  @throws what they throw
  void add(std::function<void()> work, std::function<void()> finish, std::size_t bytes = 0);
  /// Waits for all of it.
  void drain();

 private:
  struct Piece {
    std::function<void()> work;
    std::function<void()> finish;
    std::size_t bytes = 0;
    bool is_done = false;
    std::exception_ptr failure = {};
  };
  void run(const std::stop_token& stop);
  void finish_first();  // waits for it

  std::size_t max_pieces_;
  std::size_t bytes_ = 0;  // of pieces_
  std::mutex mutex_;
  std::condition_variable_any given_;
  std::condition_variable done_;
  std::deque<Piece> pieces_;   // a deque: pieces stay where they are
  std::size_t num_begun_ = 0;  // of pieces_
  std::vector<std::jthread> threads_;
};

}  // namespace espalier
