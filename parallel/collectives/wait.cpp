// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/wait.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <thread>

#include "core/error.hpp"

namespace espalier {
namespace {

constexpr long polls_between_clock_reads = 64;
constexpr double yield_seconds = 2e-3;  // a message among busy ranks takes about 1 ms; after that, sleep
// Naps are a small part of the wait: many ranks that poll often keep few cores busy.
constexpr double shortest_nap = 200e-6;
constexpr double longest_nap = 5e-3;
constexpr double nap_share = 1.0 / 64;
constexpr std::chrono::microseconds nap{100};  // the kernel's timer slack adds about 60 us

}  // namespace

const char* to_string(WaitPolicy policy) {
  switch (policy) {
    case WaitPolicy::automatic: return "auto";
    case WaitPolicy::yield: return "yield";
    case WaitPolicy::block: return "block";
  }
  return "unknown";
}

WaitPolicy wait_policy_from(std::string_view word) {
  for (const WaitPolicy policy : {WaitPolicy::automatic, WaitPolicy::yield, WaitPolicy::block})
    if (word == to_string(policy))
      return policy;
  throw Error(ExitCode::usage, {.what = "unknown wait policy",
                                .where = {},
                                .got = fmt::format("\"{}\"", word),
                                .wanted = "auto, yield or block",
                                .todo = {}});
}

WaitPolicy WaitSettings::resolved() const {
  if (policy != WaitPolicy::automatic)
    return policy;
  return ranks_share_cores ? WaitPolicy::yield : WaitPolicy::block;
}

Waiter::Waiter(const WaitSettings& settings)
    : policy_(settings.resolved()),
      always_sleeps_(settings.always_sleeps),
      deadline_seconds_(settings.deadline_seconds) {}

bool Waiter::pause() {
  if (always_sleeps_) {
    const double waited = seconds();
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::clamp(nap_share * waited, shortest_nap, longest_nap)));
    return waited <= deadline_seconds_;
  }
  if (++polls_ % polls_between_clock_reads != 0 && (policy_ == WaitPolicy::block || polls_ < polls_between_clock_reads))
    return true;
  const double waited = seconds();
  if (waited > deadline_seconds_)
    return false;
  if (policy_ == WaitPolicy::yield && waited > yield_seconds)
    std::this_thread::sleep_for(nap);
  else
    sched_yield();  // nothing where the core is ours alone, much where another program wants it
  return true;
}

double Waiter::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

}  // namespace espalier
