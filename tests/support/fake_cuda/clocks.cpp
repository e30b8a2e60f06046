// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/clocks.hpp"

#include <algorithm>

namespace fake_cuda {
namespace {

std::size_t num_lines = 0;

}  // namespace

bool Clock::covers(const Clock& other) const {
  if (!other.numbers_ || numbers_ == other.numbers_)
    return true;
  bool knows_all = numbers_ && numbers_->size() >= other.numbers_->size();
  for (std::size_t i = 0; knows_all && i < other.numbers_->size(); ++i)
    knows_all = (*numbers_)[i] >= (*other.numbers_)[i];
  return knows_all;
}

void Clock::join(const Clock& other) {
  if (covers(other))
    return;
  const Numbers& theirs = *other.numbers_;
  auto joined = std::make_shared<Numbers>(numbers_ ? *numbers_ : Numbers());
  joined->resize(std::max(joined->size(), theirs.size()));
  for (std::size_t i = 0; i < theirs.size(); ++i)
    (*joined)[i] = std::max((*joined)[i], theirs[i]);
  numbers_ = std::move(joined);
}

void Clock::join(std::size_t line, std::uint64_t number) {
  if (number == 0 || covers(line, number))
    return;
  auto joined = std::make_shared<Numbers>(numbers_ ? *numbers_ : Numbers());
  joined->resize(std::max(joined->size(), line + 1));
  (*joined)[line] = number;
  numbers_ = std::move(joined);
}

std::size_t Line::branch(std::size_t index) {
  while (branches_.size() <= index)
    branches_.push_back(num_lines++);
  return branches_[index];
}

std::uint64_t Line::add(std::size_t count) {
  const std::uint64_t before = last_;
  last_ += count;
  return before;
}

std::shared_ptr<const Actor> Line::add(const std::string& what, const std::string& where) {
  before_.join(host_clock());
  return std::make_shared<const Actor>(Actor{branch(0), add(1) + 1, before_, what, where});
}

Clock Line::clock() const {
  Clock all = before_;
  for (const std::size_t line : branches_)
    all.join(line, last_);
  return all;
}

Clock& host_clock() {
  static Clock& clock = *new Clock;
  return clock;
}

}  // namespace fake_cuda
