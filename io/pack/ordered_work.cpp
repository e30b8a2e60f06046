// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/ordered_work.hpp"

#include <utility>

namespace espalier {

OrderedWork::OrderedWork(Index num_threads) : max_pieces_(4 * static_cast<std::size_t>(num_threads)) {
  for (Index i = 0; num_threads > 1 && i < num_threads; ++i)
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
}

OrderedWork::~OrderedWork() {
  for (std::jthread& thread : threads_)
    thread.request_stop();
}

void OrderedWork::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (given_.wait(lock, stop, [&] { return num_begun_ < pieces_.size(); }) && !stop.stop_requested()) {
    Piece& piece = pieces_[num_begun_++];
    lock.unlock();
    try {
      piece.work();
    } catch (...) {
      piece.failure = std::current_exception();
    }
    lock.lock();
    piece.is_done = true;
    done_.notify_one();
  }
}

void OrderedWork::add(std::function<void()> work, std::function<void()> finish, std::size_t bytes) {
  if (threads_.empty()) {
    work();
    finish();
    return;
  }
  const auto first_is_done = [&] {
    const std::scoped_lock lock(mutex_);
    return !pieces_.empty() && pieces_.front().is_done;
  };
  const auto is_full = [&] {
    return pieces_.size() >= max_pieces_ || (!pieces_.empty() && bytes_ + bytes > max_bytes);
  };
  while (is_full() || first_is_done())  // only this thread changes the number of pieces
    finish_first();
  const std::scoped_lock lock(mutex_);
  pieces_.push_back({std::move(work), std::move(finish), bytes});
  bytes_ += bytes;
  given_.notify_one();
}

void OrderedWork::finish_first() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return pieces_.front().is_done; });
  const Piece piece = std::move(pieces_.front());
  pieces_.pop_front();
  --num_begun_;
  bytes_ -= piece.bytes;
  lock.unlock();
  if (piece.failure)
    std::rethrow_exception(piece.failure);
  piece.finish();
}

void OrderedWork::drain() {
  while (!pieces_.empty())
    finish_first();
}

}  // namespace espalier
