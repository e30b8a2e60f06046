// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/stop_requests.hpp"

#include <array>
#include <csignal>

namespace espalier {
namespace {

struct Signal {
  int number;
  const char* name;
};

constexpr std::array stop_signals = {Signal{SIGTERM, "SIGTERM"}, Signal{SIGUSR1, "SIGUSR1"}, Signal{SIGINT, "SIGINT"},
                                     Signal{SIGPIPE, "SIGPIPE"}, Signal{SIGHUP, "SIGHUP"}};

sigset_t stop_signal_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const Signal& signal : stop_signals)
    sigaddset(&set, signal.number);
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

EndAtStopRequest::EndAtStopRequest()
    : watcher_([](const std::stop_token& over) {
        const sigset_t set = stop_signal_set();
        constexpr timespec tick{.tv_sec = 0, .tv_nsec = 50'000'000};
        while (!over.stop_requested())
          if (const int number = sigtimedwait(&set, nullptr, &tick); number > 0 && !is_ignored(number)) {
            release_stop_requests();
            raise(number);
          }
      }) {}

void release_stop_requests() {
  const sigset_t set = stop_signal_set();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

std::string stop_request() {
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  for (const auto& [number, name] : stop_signals)
    if (sigismember(&pending, number) == 1 && !(number == SIGHUP && is_ignored(number)))
      return name;
  return {};
}

}  // namespace espalier
