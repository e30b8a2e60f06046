// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives/nccl_watchdog.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda_check.hpp"

namespace espalier {
namespace {

constexpr std::chrono::milliseconds watch_interval{100};
constexpr std::chrono::seconds patience{10};
constexpr std::chrono::seconds long_wait{1};  // that the rank's progress shows; and how often it is written
constexpr int marks_at_start = 64;            // of two a group: as many as are in flight in most runs
constexpr const char* look_elsewhere = "look for the first rank that failed: the others only see that it is gone";

}  // namespace

void require_nccl(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result == ncclSuccess)
    return;
  throw Error(ExitCode::communication,
              {.what = "an NCCL call failed",
               .where = call,
               .got = fmt::format("{}: {}", ncclGetErrorString(result), ncclGetLastError(comm)),
               .wanted = {},
               .todo = fmt::format("{}; NCCL_DEBUG=WARN says more", look_elsewhere)});
}

NcclWatchdog::NcclWatchdog() {
  ESPALIER_CUDA(cudaGetDevice(&device_));
  watch_ = std::thread([this] { watch(); });
  stand_by_ = std::thread([this] { stand_by(); });
}

NcclWatchdog::~NcclWatchdog() {
  {
    const std::lock_guard lock(stop_mutex_);
    stop_ = true;
  }
  stopped_.notify_all();
  watch_.join();
  stand_by_.join();
}

void NcclWatchdog::add(ncclComm_t comm, std::string name, std::string peers, ProgressWriter& progress) {
  reserve_events(marks_at_start);
  const std::lock_guard lock(mutex_);
  watched_[comm] = {.name = std::move(name), .peers = std::move(peers), .progress = &progress, .groups = {}};
}

bool NcclWatchdog::remove(ncclComm_t comm) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(comm);
  if (!failed_ && reported_wait_.first == &found->second) {
    found->second.progress->leave_stream_wait();
    reported_wait_ = {};
  }
  watched_.erase(found);
  return !failed_;
}

void NcclWatchdog::announce(ncclComm_t comm, std::string what, std::vector<int> world_ranks, double deadline_seconds,
                            const ExecSpace& stream) {
  StreamEvent begin;
  begin.record(stream);  // before the lock: behind a full stream it waits, and the watchdog must not
  const std::lock_guard lock(mutex_);
  require_alive();  // under the lock: what is aborted from here on is not destroyed below the call that enqueues
  Watched& watched = watched_.at(comm);
  const Clock::time_point now = Clock::now();
  drop_done(watched, now);
  watched.groups.push_back({std::move(what), std::move(world_ranks), deadline_seconds, now, std::move(begin)});
  longest_deadline_ = std::max<double>(longest_deadline_, deadline_seconds);
  is_enqueueing_ = true;
}

void NcclWatchdog::returned() {
  const std::lock_guard lock(mutex_);
  is_enqueueing_ = false;
  if (failed_)
    abort_all();  // what fail() could not
}

void NcclWatchdog::enqueued(ncclComm_t comm, const ExecSpace& stream) {
  StreamEvent end;
  end.record(stream);
  const std::lock_guard lock(mutex_);
  Group& group = watched_.at(comm).groups.back();
  group.end = std::move(end);
  group.is_enqueued = true;
}

void NcclWatchdog::require_alive() {
  if (!failed_)
    return;
  is_known_ = true;
  throw Error(reason_);
}

void NcclWatchdog::abort(const Error& reason) {
  is_known_ = true;
  const std::lock_guard lock(mutex_);
  if (!failed_)
    fail(reason.code(), reason.report());
}

bool NcclWatchdog::stop_requested_within(std::chrono::milliseconds after) {
  std::unique_lock lock(stop_mutex_);
  return stopped_.wait_for(lock, after, [this] { return stop_; });
}

void NcclWatchdog::watch() {
  // Asking for events must not break off a capture that the computing thread is about.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  static_cast<void>(cudaSetDevice(device_));
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
  do {
    last_look_ = Clock::now();
    const std::lock_guard lock(mutex_);
    try {
      for (auto& [comm, watched] : watched_)
        if (!failed_)
          look_after(comm, watched);
      if (!failed_)
        report_stream_wait(Clock::now());
    } catch (const Error& error) {  // the device itself has failed
      fail(error.code(), error.report());
    }
  } while (!failed_ && !stop_requested_within(watch_interval));
}

// For the days that CUDA keeps the watchdog, and that aborting does not help.
void NcclWatchdog::stand_by() {
  const auto end_job = [](const Error& reason) {
    std::fputs((reason.what() + std::string("\n")).c_str(), stderr);
    MPI_Abort(MPI_COMM_WORLD, static_cast<int>(reason.code()));
  };
  std::optional<Clock::time_point> failed_at;
  while (!stop_requested_within(watch_interval)) {
    const Clock::time_point now = Clock::now();
    if (failed_) {
      failed_at = failed_at.value_or(now);
      if (now - *failed_at > patience && !(is_known_ && *is_aborted_))
        end_job(reason_);
    } else if (const std::chrono::duration<double> silent = now - last_look_.load();
               longest_deadline_ > 0 && silent > patience + std::chrono::duration<double>(longest_deadline_)) {
      end_job(Error(ExitCode::communication,
                    {.what = fmt::format("CUDA has not answered for {:.1f} s", silent.count()),
                     .where = "watchdog of NCCL",
                     .got = "the computing thread is inside a call, or the GPU is lost",
                     .wanted = "an answer at once",
                     .todo = "look for Xid errors in the kernel's log, and for messages of other ranks"}));
    }
  }
}

void NcclWatchdog::drop_done(Watched& watched, Clock::time_point now) {
  std::deque<Group>& groups = watched.groups;
  while (!groups.empty() && groups.front().is_enqueued && groups.front().end.query()) {
    groups.pop_front();
    ++watched.num_done;
    if (!groups.empty())
      groups.front().since = now;
  }
}

// The longest wait of any stream; while kernels before a group are at work its stream waits for nobody.
void NcclWatchdog::report_stream_wait(Clock::time_point now) {
  if (watched_.empty())
    return;
  const Watched* longest = nullptr;
  for (auto& [comm, watched] : watched_) {
    if (watched.groups.empty())
      continue;
    Group& group = watched.groups.front();
    if (!group.begun && group.begin.query())
      group.begun = now;
    if (group.begun && now - *group.begun >= long_wait &&
        (longest == nullptr || *group.begun < *longest->groups.front().begun))
      longest = &watched;
  }
  ProgressWriter& progress = *watched_.begin()->second.progress;  // all communicators are of one rank
  const std::pair wait(longest, longest != nullptr ? longest->num_done : 0);
  if (wait != std::exchange(reported_wait_, wait)) {
    if (longest == nullptr)
      progress.leave_stream_wait();
    else
      progress.enter_stream_wait(longest->groups.front().what, longest->name, longest->num_done,
                                 longest->groups.front().world_ranks,
                                 std::chrono::duration<double>(now - *longest->groups.front().begun).count());
  }
  if (now >= next_sign_of_life_) {
    progress.show_life();
    next_sign_of_life_ = now + long_wait;
  }
}

void NcclWatchdog::look_after(ncclComm_t comm, Watched& watched) {
  const Clock::time_point now = Clock::now();
  const std::deque<Group>& groups = watched.groups;
  drop_done(watched, now);
  const std::string what = groups.empty() ? "nothing in flight" : groups.front().what;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
    return fail(
        ExitCode::communication,
        {.what = "NCCL reports an error",
         .where = fmt::format("communicator {}, {}", watched.name, what),
         .got = fmt::format("{}: {}", ncclGetErrorString(asked != ncclSuccess ? asked : state), ncclGetLastError(comm)),
         .wanted = {},
         .todo = fmt::format("{}; NCCL_DEBUG=WARN says more", look_elsewhere)});
  if (groups.empty())
    return;
  const double waited = std::chrono::duration<double>(now - groups.front().since).count();
  if (waited > groups.front().deadline_seconds)
    fail(ExitCode::communication,
         {.what = fmt::format("waited {:.1f} s for {} without success", waited, what),
          .where = fmt::format("communicator {}, NCCL", watched.name),
          .got = groups.front().begun ? fmt::format("not done between this rank and {}", watched.peers)
                                      : "this rank has not reached it: earlier work on its GPU is not done",
          .wanted = fmt::format("an end within {:g} s", groups.front().deadline_seconds),
          .todo = "look at what the named ranks do; if they are only slow, raise run.communication_timeout"});
}

void NcclWatchdog::fail(ExitCode code, ErrorReport reason) {
  reason_ = Error(code, std::move(reason));
  failed_ = true;
  if (!is_enqueueing_)  // abort would free what the thread inside NCCL uses; for the day that it stays there see
                        // stand_by()
    abort_all();
}

// As one group: each abort by itself would wait for all that its stream has before it, which may wait for a
// communicator whose turn has not come. By a thread of its own: NCCL may take its time, and the lock is held.
void NcclWatchdog::abort_all() {
  std::vector<ncclComm_t> comms;
  for (const auto& [comm, watched] : watched_)
    comms.push_back(comm);
  std::thread([comms, done = is_aborted_, device = device_] {
    static_cast<void>(cudaSetDevice(device));
    static_cast<void>(ncclGroupStart());
    for (const ncclComm_t comm : comms)
      static_cast<void>(ncclCommAbort(comm));  // whatever it says, the job ends
    static_cast<void>(ncclGroupEnd());
    *done = true;
  }).detach();
}

}  // namespace espalier
