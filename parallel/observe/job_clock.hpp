// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace espalier {

class Communicator;

/// Seconds since the start of the job, the same on all ranks once synchronize_clocks() has been called. Never set back.
class JobClock {
 public:
  double now() const { return steady_seconds() - start_; }

  /// Calls `start` (of our steady clock) the start of the job.
  void set_start(double start) { start_ = start; }
  double start() const { return start_; }

  static double steady_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

 private:
  double start_ = steady_seconds();
};

/// Sets the clock of the job to zero on all ranks, by the clock of rank 0. Ranks on its host share its steady clock;
/// each other rank measures the difference by a few round trips. Collective; Runtime calls it once.
void synchronize_clocks(const Communicator& world);

/// A round trip: sent and returned by our clock, answered by the other clock. @returns what to add to our clock to get
/// the other: by the shortest round trip, which is the most exact.
struct RoundTrip {
  double sent, answered, returned;
};
double clock_difference(const RoundTrip* trips, int count);

}  // namespace espalier
