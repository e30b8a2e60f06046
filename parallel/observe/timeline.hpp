// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/observe/step_observer.hpp"

namespace espalier {

/// What a rank did, in seconds of the job's clock.
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

inline constexpr int operations_track = 0;     ///< what the rank itself did, one after another
inline constexpr int communication_track = 1;  ///< communication in the background

/// Records what a rank did and when, while it is switched on. Evaluations belong to no step and are left out.
class Timeline : public StepObserver {
 public:
  bool is_on() const { return on_; }
  void switch_on(std::size_t expected_events = 4096);
  void switch_off() { on_ = false; }

  void step_begins(std::int64_t step) override { step_ = step; }
  void spent(const SpentTime& time) override;  ///< leaves out what took no time
  void evaluation_begins() override { in_evaluation_ = true; }
  void evaluation_ends() override { in_evaluation_ = false; }

  const std::vector<TimelineEvent>& events() const { return events_; }

  /// Returns the events so far, and keeps none.
  std::vector<TimelineEvent> take();

 private:
  bool on_ = false;
  bool in_evaluation_ = false;
  std::int64_t step_ = 0;
  std::vector<TimelineEvent> events_;
};

}  // namespace espalier
