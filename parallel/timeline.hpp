// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace espalier {

/// Something that a rank did, in seconds of the job's clock.
struct TimelineEvent {
  std::string name;
  const char* category = "other";  ///< a phase word, a literal: "forward", "bubble", "data_comm"
  int chunk = -1;                  ///< -1: of none
  int microbatch = -1;
  double begin = 0;
  double end = 0;
  int track = 0;
  std::int64_t step = 0;
};

inline constexpr int operations_track = 0;     ///< what the rank itself did, one thing after another
inline constexpr int communication_track = 1;  ///< what went on in the background

/// What a rank did when, kept only while switched on. Ask is_on() before building a name.
class Timeline {
 public:
  bool is_on() const { return on_; }
  void switch_on(std::size_t expected_events = 4096);
  void switch_off() { on_ = false; }

  void record(TimelineEvent event) {
    if (!on_)
      return;
    event.step = step_;
    events_.push_back(std::move(event));
  }

  const std::vector<TimelineEvent>& events() const { return events_; }

  /// While it lives, nothing is kept: for what belongs to no step, such as an evaluation.
  class Pause {
   public:
    explicit Pause(Timeline& timeline) : timeline_(timeline), was_on_(timeline.on_) { timeline_.on_ = false; }
    ~Pause() { timeline_.on_ = was_on_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Timeline& timeline_;
    bool was_on_;
  };

  /// Events from now on belong to this step.
  void set_step(std::int64_t step) { step_ = step; }

  /// Hands over the events so far, and goes on with none.
  std::vector<TimelineEvent> take();

 private:
  bool on_ = false;
  std::int64_t step_ = 0;
  std::vector<TimelineEvent> events_;
};

}  // namespace espalier
