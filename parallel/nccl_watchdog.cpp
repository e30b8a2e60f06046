// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/nccl_watchdog.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <utility>
#include <vector>

#include "core/cuda_check.hpp"

namespace espalier {
namespace {

constexpr std::chrono::milliseconds watch_interval{100};
constexpr std::chrono::seconds patience{10};
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
  thread_ = std::thread([this] { run(); });
}

NcclWatchdog::~NcclWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void NcclWatchdog::add(ncclComm_t comm, std::string name, std::string peers) {
  const std::lock_guard lock(mutex_);
  watched_[comm] = {.name = std::move(name), .peers = std::move(peers), .groups = {}};
}

bool NcclWatchdog::remove(ncclComm_t comm) {
  const std::lock_guard lock(mutex_);
  watched_.erase(comm);
  return !failed_;
}

void NcclWatchdog::announce(ncclComm_t comm, std::string what, double deadline_seconds) {
  const std::lock_guard lock(mutex_);
  watched_.at(comm).groups.push_back({std::move(what), deadline_seconds, Clock::now()});
  is_queueing_ = true;
}

void NcclWatchdog::queued(ncclComm_t comm, const ExecSpace& queue) {
  const std::lock_guard lock(mutex_);
  Group& group = watched_.at(comm).groups.back();
  group.end.set(queue);
  group.is_queued = true;
}

void NcclWatchdog::require_alive() const {
  if (failed_)
    throw Error(ExitCode::communication, reason_);
}

void NcclWatchdog::run() {
  // Asking for events must not break off a capture that the computing thread is about.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  static_cast<void>(cudaSetDevice(device_));
  static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
  std::unique_lock lock(mutex_);
  while (!stop_ && !failed_) {
    try {
      for (auto& [comm, watched] : watched_)
        if (!failed_)
          look_after(comm, watched);
    } catch (const Error& error) {  // the device itself has failed
      call_off(error.report());
    }
    wake_.wait_for(lock, watch_interval, [this] { return stop_; });
  }
  lock.unlock();
  if (failed_)
    end_job_if_stuck();
}

// ncclCommAbort is meant to wake a thread that waits inside NCCL; this is for the day that it does not.
void NcclWatchdog::end_job_if_stuck() {
  const Clock::time_point patience_ends = Clock::now() + patience;
  while (is_queueing_ && Clock::now() < patience_ends)
    std::this_thread::sleep_for(watch_interval);
  if (!is_queueing_)
    return;
  fmt::print(stderr, "{}\n", to_text(reason_));
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(ExitCode::communication));
}

void NcclWatchdog::look_after(ncclComm_t comm, Watched& watched) {
  const Clock::time_point now = Clock::now();
  std::deque<Group>& groups = watched.groups;
  while (!groups.empty() && groups.front().is_queued && groups.front().end.reached()) {
    groups.pop_front();
    if (!groups.empty())
      groups.front().since = now;
  }
  const std::string what = groups.empty() ? "nothing in flight" : groups.front().what;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  if (asked != ncclSuccess || (state != ncclSuccess && state != ncclInProgress))
    return call_off(
        {.what = "NCCL reports an error",
         .where = fmt::format("communicator {}, {}", watched.name, what),
         .got = fmt::format("{}: {}", ncclGetErrorString(asked != ncclSuccess ? asked : state), ncclGetLastError(comm)),
         .wanted = {},
         .todo = fmt::format("{}; NCCL_DEBUG=WARN says more", look_elsewhere)});
  if (groups.empty())
    return;
  const double waited = std::chrono::duration<double>(now - groups.front().since).count();
  if (waited > groups.front().deadline_seconds)
    call_off({.what = fmt::format("waited {:.1f} s for {}, in vain", waited, what),
              .where = fmt::format("communicator {}, NCCL", watched.name),
              .got = fmt::format("not done between this rank and {}", watched.peers),
              .wanted = fmt::format("an end within {:g} s", groups.front().deadline_seconds),
              .todo = "see what the named ranks do; if they are only slow, raise run.communication_timeout"});
}

void NcclWatchdog::call_off(ErrorReport reason) {
  reason_ = std::move(reason);
  failed_ = true;
  std::vector<ncclComm_t> comms;
  for (const auto& [comm, watched] : watched_)
    comms.push_back(comm);
  const auto abort_all = [comms] {
    for (const ncclComm_t comm : comms)
      static_cast<void>(ncclCommAbort(comm));  // whatever it says, the job ends
  };
  if (is_queueing_)  // abort may wait for the thread that is inside NCCL, for ever
    std::thread(abort_all).detach();
  else
    abort_all();
}

}  // namespace espalier
