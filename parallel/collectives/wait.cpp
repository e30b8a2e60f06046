// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/wait.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

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

bool Waiter::pause() {
  if (settings_.always_sleeps) {
    const double waited = seconds();
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::clamp(nap_share * waited, shortest_nap, longest_nap)));
    return waited <= settings_.deadline_seconds;
  }
  if (++polls_ % polls_between_clock_reads != 0 && (!settings_.ranks_share_cores || polls_ < polls_between_clock_reads))
    return true;
  const double waited = seconds();
  if (waited > settings_.deadline_seconds)
    return false;
  if (settings_.ranks_share_cores && waited > yield_seconds)
    std::this_thread::sleep_for(nap);
  else
    sched_yield();  // nothing where the core is ours alone, much where another program wants it
  return true;
}

double Waiter::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

}  // namespace espalier
