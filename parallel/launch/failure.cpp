// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/launch/failure.hpp"

#include <fmt/format.h>
#include <mpi.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "parallel/collectives/messages.hpp"
#include "parallel/launch/launch_environment.hpp"

namespace espalier {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto cause_window = 250ms;     // for a lower rank with a cause of its own to speak up
constexpr auto consequence_window = 2s;  // for the rank that knows the cause
constexpr auto joint_window = 1s;        // for all ranks to have failed alike
// For the rank that speaks to end this one. Launchers take their time: Open MPI's waits a second before it kills.
constexpr auto speaker_window = consequence_window + 3s;

[[noreturn]] void leave(ExitCode code) {
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(code));
}

[[noreturn]] void end_job(const Communicator& failures, ExitCode code) {
  std::fflush(nullptr);
  if (failures.size() > 1)  // alone there is nobody to end, and MPI would only add a line of its own
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  leave(code);
}

/// MPI_Abort makes the launcher close the pipes with what it has not read yet; hydra was seen to lose the whole block
/// in one run of twenty. So: until the pipe is empty, and a moment for the way from there to the terminal.
void wait_until_read(int descriptor) {
  int unread = 0;
  for (int polls = 0; polls < 100 && ioctl(descriptor, FIONREAD, &unread) == 0 && unread > 0; ++polls)
    std::this_thread::sleep_for(10ms);
  std::this_thread::sleep_for(100ms);
}

void print(const Communicator& failures, ExitCode code, const std::string& text) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string block = fmt::format("espalier: error on rank {} of {}, host {} (exit code {})\n  {}\n",
                                        failures.rank(), failures.size(), host.data(), static_cast<int>(code), text);
  std::fflush(stdout);
  std::fwrite(block.data(), 1, block.size(), stderr);  // in one piece: launchers mix the ranks' lines
  wait_until_read(STDERR_FILENO);
}

/// Messages between ranks that fail.
class Notices {
 public:
  struct Notice {
    bool knows_cause = false;  // else: saw a message that failed or was late
    signed char code = 0;      // that it will leave with
    bool may_leave = false;    // the block is printed, and all have failed alike
  };

  Notices(const Communicator& failures, const Notice& own) : failures_(failures), own_(own) { send_to_all(own_); }

  /// Takes what comes, until `done` or for so long.
  template <class Done>
  void receive_until(Clock::duration window, const Done& done) {
    for (const auto start = Clock::now(); !done() && Clock::now() - start < window; std::this_thread::sleep_for(1ms))
      receive();
  }
  /// Has a rank failed that knows more than this one, or as much with a lower number?
  bool another_speaks() const { return another_speaks_; }
  /// Have all ranks failed, with this one's code?
  bool all_alike() const { return num_alike_ == failures_.size() - 1; }
  bool may_leave() const { return may_leave_; }
  void let_all_leave() {
    release_.may_leave = true;
    send_to_all(release_);
    receive_until(100ms, [] { return false; });  // messages move while MPI is called
  }

 private:
  void send_to_all(const Notice& notice) {
    for (int peer = 0; peer < failures_.size(); ++peer)
      if (peer != failures_.rank()) {
        MPI_Request request;  // never completed: three bytes go out at once
        MPI_Isend(&notice, sizeof notice, MPI_BYTE, peer, tags::failure, failures_.handle(), &request);
      }
  }
  void receive() {
    int found = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, tags::failure, failures_.handle(), &found, &status) != MPI_SUCCESS || found == 0)
      return;
    Notice theirs;
    MPI_Recv(&theirs, sizeof theirs, MPI_BYTE, status.MPI_SOURCE, tags::failure, failures_.handle(), MPI_STATUS_IGNORE);
    if (theirs.may_leave) {
      may_leave_ = true;
      return;
    }
    num_alike_ += theirs.code == own_.code ? 1 : 0;
    if (theirs.knows_cause != own_.knows_cause ? theirs.knows_cause : status.MPI_SOURCE < failures_.rank())
      another_speaks_ = true;
  }

  const Communicator& failures_;
  const Notice own_;
  Notice release_ = own_;
  int num_alike_ = 0;
  bool another_speaks_ = false;
  bool may_leave_ = false;
};

const Communicator* watched_job = nullptr;
std::function<void(const std::string&)> early_exit_action;

void exit_is_a_failure() {
  int finalized = 0;
  if (watched_job == nullptr || MPI_Finalized(&finalized) != MPI_SUCCESS || finalized != 0)
    return;
  const Communicator& failures = *std::exchange(watched_job, nullptr);
  const std::string report =
      to_text({.what = fmt::format("rank {} left before the end of the job", failures.rank()),
               .where = fmt::format("rank {} of {}, by exit()", failures.rank(), failures.size()),
               .got = "a call of exit() while the others still run",
               .wanted = "every rank returns from main",
               .todo = "find what called exit() (a library, a user's callback), and throw an exception there"});
  if (early_exit_action)
    early_exit_action(report);
  fail_job(failures, ExitCode::communication, report, true);
}

}  // namespace

void watch_for_exit(const Communicator* failures) {
  static const bool registered = std::atexit(exit_is_a_failure) == 0;
  ESPALIER_ASSERT(registered, "atexit() takes no more functions");
  watched_job = failures;
}

void abort_links_on_error(const Communicator& world, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    if (const auto& links = world.context().device_links)
      links->abort(error_from(error, ExitCode::defect));
    throw;
  }
}

void require_links_alive(const Communicator& world) {
  if (const auto& links = world.context().device_links)
    links->require_alive();
}

AtEarlyExit::AtEarlyExit(std::function<void(const std::string&)> action) { early_exit_action = std::move(action); }

AtEarlyExit::~AtEarlyExit() { early_exit_action = nullptr; }

void fail_job(const Communicator& failures, ExitCode code, const std::string& text) {
  fail_job(failures, code, text, code != ExitCode::communication);
}

// MPI's return codes are not looked at here: whatever fails now, the next step is to leave.
void fail_job(const Communicator& failures, ExitCode code, const std::string& text, bool knows_cause) {
  watch_for_exit(nullptr);  // MPI_Abort may call exit() itself
  const bool leaves_together = failures.size() > 1 && started_by_srun();
  if (leaves_together)
    std::signal(SIGTERM, SIG_IGN);  // srun sends it when the first of us has left; we are about to, with our code
  Notices notices(failures, {.knows_cause = knows_cause, .code = static_cast<signed char>(code)});
  const auto window = !knows_cause           ? Clock::duration(consequence_window)
                      : failures.rank() == 0 ? Clock::duration(0)
                                             : Clock::duration(cause_window);
  notices.receive_until(window, [&] { return notices.another_speaks(); });
  if (notices.another_speaks()) {  // that rank prints and ends the job; if not, we end it
    notices.receive_until(speaker_window, [&] { return notices.may_leave(); });
    if (notices.may_leave())
      leave(code);
  }
  print(failures, code, text);
  if (leaves_together && knows_cause) {  // else somebody is late or gone, and there is nothing to wait for
    notices.receive_until(joint_window, [&] { return notices.all_alike(); });
    if (notices.all_alike()) {
      notices.let_all_leave();
      leave(code);
    }
  }
  end_job(failures, code);
}

}  // namespace espalier
