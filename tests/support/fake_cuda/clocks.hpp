// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// Vector clocks: what is known to be done before what, whenever it happened to be done here. See Flanagan and Freund,
/// "FastTrack: efficient and precise dynamic race detection" (2009).
namespace fake_cuda {

/// Of each line of work, up to which number it is known to be done.
class Clock {
 public:
  void join(const Clock& other);
  void join(std::size_t line, std::uint64_t number);
  bool covers(std::size_t line, std::uint64_t number) const {
    return numbers_ && line < numbers_->size() && (*numbers_)[line] >= number;
  }
  bool covers(const Clock& other) const;

 private:
  using Numbers = std::vector<std::uint64_t>;
  std::shared_ptr<const Numbers> numbers_;  // shared until it changes: most work waits for nothing new
};

/// One piece of work, for those that ask what it has done to memory.
struct Actor {
  std::size_t line = 0;  ///< what is of one line is ordered
  std::uint64_t number = 0;
  Clock before;  ///< what is done before it
  std::string what, where;
  bool comes_after(const Actor& other) const { return line == other.line || before.covers(other.line, other.number); }
};

/// A line of work: of a stream, with others for the branches of the graphs that it launches.
class Line {
 public:
  /// The next piece of work.
  std::shared_ptr<const Actor> add(const std::string& what, const std::string& where);
  /// The same for `count` pieces at once, whose clocks are told later: the number of the last before them.
  std::uint64_t add(std::size_t count);

  /// What comes from now on comes after what that clock knows.
  void wait_for(const Clock& clock) { before_.join(clock); }
  /// What is done when all is done that the line and its branches hold now.
  Clock clock() const;

  const Clock& before() const { return before_; }
  std::size_t branch(std::size_t index);  ///< a line; 0 is this one

 private:
  std::vector<std::size_t> branches_;
  std::uint64_t last_ = 0;
  Clock before_;
};

/// What the host knows to be done, in whatever thread: who learns it there tells the others, and how is not seen here.
Clock& host_clock();

}  // namespace fake_cuda
