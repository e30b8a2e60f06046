// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>

namespace espalier {

/// How a rank waits for a message. MPI's own blocking calls spin: with more ranks than
/// cores a small all_reduce then takes tens of milliseconds instead of one.
enum class WaitPolicy {
  automatic,  ///< yield where ranks share cores, else block
  yield,      ///< poll a little, then give the core away between polls, then sleep between polls
  block       ///< poll all the time, without sleep: the quickest where the core is ours
};
const char* to_string(WaitPolicy policy);

/// "auto", "yield" or "block".
/// @throws Error (ExitCode::usage) for any other word.
WaitPolicy wait_policy_from(std::string_view word);

struct WaitSettings {
  WaitPolicy policy = WaitPolicy::automatic;
  bool ranks_share_cores = false;  ///< measured by Runtime; decides `automatic`
  bool always_sleeps = false;      ///< sleep between polls with any policy
  double deadline_seconds = 600;   ///< a longer wait is an error that names what it waited for, and for whom

  WaitPolicy resolved() const;
};

/// Paces one wait: poll, and call pause() after each poll in vain until it says that the deadline has passed.
class Waiter {
 public:
  explicit Waiter(const WaitSettings& settings);

  /// Spends a moment as the policy says. False once the deadline has passed.
  [[nodiscard]] bool pause();

  double seconds() const;  ///< since construction

 private:
  using Clock = std::chrono::steady_clock;

  WaitPolicy policy_;
  bool always_sleeps_;
  double deadline_seconds_;
  Clock::time_point start_ = Clock::now();
  long polls_ = 0;
};

}  // namespace espalier
