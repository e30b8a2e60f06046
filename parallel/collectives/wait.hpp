// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace espalier {

/// How a rank waits for a message. MPI's own blocking calls spin: with more ranks than cores a small all_reduce then
/// takes tens of milliseconds instead of one.
struct WaitSettings {
  /// Measured by Runtime. Then a wait polls a little, gives the core away between polls, and later sleeps between them;
  /// else it polls all the time, the quickest where the core is ours.
  bool ranks_share_cores = false;
  bool always_sleeps = false;     ///< between polls, whoever has the cores
  double deadline_seconds = 600;  ///< a longer wait is an error that names what it waited for, and for whom
};

/// Paces one wait: poll, and call pause() after each poll in vain until it says that the deadline has passed.
class Waiter {
 public:
  explicit Waiter(const WaitSettings& settings) : settings_(settings) {}

  /// Spends a moment as the settings say. False once the deadline has passed.
  [[nodiscard]] bool pause();

  double seconds() const;  ///< since construction

 private:
  using Clock = std::chrono::steady_clock;

  WaitSettings settings_;
  Clock::time_point start_ = Clock::now();
  long polls_ = 0;
};

}  // namespace espalier
