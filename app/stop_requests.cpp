// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/stop_requests.hpp"

#include <array>
#include <csignal>

namespace espalier {
namespace {

constexpr std::array stop_signals = {SIGTERM, SIGUSR1, SIGINT, SIGPIPE, SIGHUP};

sigset_t stop_signal_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : stop_signals)
    sigaddset(&set, signal);
  return set;
}

// Linux keeps a held signal even if it is ignored.
bool is_ignored(int signal) {
  struct sigaction action = {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void hold_stop_requests() {
  const sigset_t set = stop_signal_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void release_stop_requests() {
  const sigset_t set = stop_signal_set();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool stop_requested() {
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  for (const int signal : stop_signals)
    if (sigismember(&pending, signal) == 1 && !(signal == SIGHUP && is_ignored(signal)))
      return true;
  return false;
}

}  // namespace espalier
