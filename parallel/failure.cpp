// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/failure.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "parallel/messages.hpp"

namespace espalier {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto cause_window = 250ms;     // for a lower rank with a cause of its own to speak up
constexpr auto consequence_window = 2s;  // for the rank that knows the cause

[[noreturn]] void leave(const Communicator& failures, ExitCode code) {
  std::fflush(nullptr);
  if (failures.size() > 1)  // alone there is nobody to end, and MPI would only add a line of its own
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  std::_Exit(static_cast<int>(code));
}

/// MPI_Abort makes the launcher close the pipes with what it has not read yet; hydra was seen to lose the whole block
/// in one run of twenty. So: until the pipe is empty, and a moment for the way from there to the terminal.
void wait_until_read(int descriptor) {
  int unread = 0;
  for (int polls = 0; polls < 100 && ioctl(descriptor, FIONREAD, &unread) == 0 && unread > 0; ++polls)
    std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(100ms);
}

[[noreturn]] void print_and_leave(const Communicator& failures, ExitCode code, const std::string& text) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string block = fmt::format("espalier: error on rank {} of {}, host {} (exit code {})\n  {}\n",
                                        failures.rank(), failures.size(), host.data(), static_cast<int>(code), text);
  std::fflush(stdout);
  std::fwrite(block.data(), 1, block.size(), stderr);  // in one piece: launchers mix the ranks' lines
  wait_until_read(STDERR_FILENO);
  leave(failures, code);
}

const Communicator* watched_job = nullptr;

void exit_is_a_failure() {
  int finalized = 0;
  if (watched_job == nullptr || MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0)
    return;
  const Communicator& failures = *std::exchange(watched_job, nullptr);
  fail_job(failures, ExitCode::communication,
           to_text({.what = fmt::format("rank {} left before the end of the job", failures.rank()),
                    .where = fmt::format("rank {} of {}, by exit()", failures.rank(), failures.size()),
                    .got = "a call of exit() while the others still run",
                    .wanted = "every rank returns from main",
                    .todo = "find what called exit() (a library, a user's callback), and throw an exception there"}),
           true);
}

}  // namespace

void watch_for_exit(const Communicator* failures) {
  static const bool registered = std::atexit(exit_is_a_failure) == 0;
  ESPALIER_ASSERT(registered, "atexit() takes no more functions");
  watched_job = failures;
}

void fail_job(const Communicator& failures, ExitCode code, const std::string& text) {
  fail_job(failures, code, text, code != ExitCode::communication);
}

// MPI's return codes are not looked at here: whatever fails now, the next step is to leave.
void fail_job(const Communicator& failures, ExitCode code, const std::string& text, bool knows_cause) {
  watch_for_exit(nullptr);  // MPI_Abort may call exit() itself
  const int rank = failures.rank();
  const int size = failures.size();
  const char standing = knows_cause ? 1 : 0;
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank) {
      MPI_Request request;  // never completed: a byte goes out at once
      MPI_Isend(&standing, 1, MPI_CHAR, peer, tags::failure, failures.handle(), &request);
    }
  const auto window = !knows_cause ? Clock::duration(consequence_window)
                      : rank == 0  ? Clock::duration(0)
                                   : Clock::duration(cause_window);
  for (const auto start = Clock::now(); Clock::now() - start < window; std::this_thread::sleep_for(1ms)) {
    int found = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tags::failure, failures.handle(), &found, &status) != MPI_SUCCESS || found == 0)
      continue;
    char theirs = 0;
    MPI_Recv(&theirs, 1, MPI_CHAR, status.MPI_SOURCE, tags::failure, failures.handle(), MPI_STATUS_IGNORE);
    if (theirs > standing || (theirs == standing && status.MPI_SOURCE < rank)) {
      std::this_thread::sleep_for(consequence_window + 1s);  // that rank prints and ends the job; if not, we end it
      break;
    }
  }
  print_and_leave(failures, code, text);
}

}  // namespace espalier
