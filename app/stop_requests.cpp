// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/stop_requests.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <system_error>

#include "parallel/launch/launch_environment.hpp"

namespace espalier {
namespace {

struct Signal {
  int number;
  const char* name;
};

constexpr std::array stop_signals = {Signal{SIGTERM, "SIGTERM"}, Signal{SIGUSR1, "SIGUSR1"},
                                     Signal{SIGINT, "SIGINT"},   Signal{SIGPIPE, "SIGPIPE"},
                                     Signal{SIGHUP, "SIGHUP"},   Signal{SIGXCPU, "SIGXCPU"}};

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

// Other threads are at work, in MPI among others: nothing of theirs is undone. The launcher kills the ranks that are
// left when the first has ended, so rank 0 speaks well before any does.
[[noreturn]] void end_process(ExitCode code) {
  constexpr auto until_rank_0_has_spoken = std::chrono::milliseconds(500);
  if (launched_rank().rank == 0)
    std::fputs("espalier: stopped before the first step; run the same command again\n", stderr);
  std::this_thread::sleep_for(until_rank_0_has_spoken);
  _exit(static_cast<int>(code));
}

}  // namespace

void hold_stop_requests() {
  const sigset_t set = stop_signal_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

EndAtStopRequest::EndAtStopRequest(std::optional<ExitCode> exit_code) {
  const auto watch = [exit_code](const std::stop_token& over) {
    constexpr auto patience = std::chrono::seconds(1);
    constexpr auto tick = std::chrono::milliseconds(5);  // the launcher kills ranks that end later than others
    std::optional<std::chrono::steady_clock::time_point> since;
    for (; !over.stop_requested(); std::this_thread::sleep_for(tick)) {
      if (stop_request().empty())
        continue;
      if (!exit_code) {
        release_stop_requests();  // ends the process, unless the request is ignored
        hold_stop_requests();
        continue;
      }
      const auto now = std::chrono::steady_clock::now();
      since = since.value_or(now);
      if (now - *since >= patience)
        end_process(*exit_code);
    }
  };
  try {
    watcher_ = std::jthread(watch);
  } catch (const std::system_error&) {
    release_stop_requests();  // no thread is to be had: Runtime says so, as soon as it asks for its own
  }
}

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
