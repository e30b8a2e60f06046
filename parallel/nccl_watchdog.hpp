// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "core/error.hpp"
#include "parallel/device_queue.hpp"

namespace espalier {

/// @throws Error (ExitCode::communication) for a call of NCCL that failed, with NCCL's own words.
void require_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr);

/// Watches over what NCCL does in the queues of a device, where no host waits: a thread that asks every communicator
/// for errors, and every group of messages whether it is done. When one fails or passes its deadline, it calls all
/// communicators of the rank off, so that no kernel and no host thread waits on, and keeps the reason for the thread
/// that computes, which finds it at its next message. Where that thread is inside NCCL and does not come back, the
/// watchdog ends the job itself.
class NcclWatchdog {
 public:
  NcclWatchdog();
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  /// From now on `comm` is asked for errors; `name` and `peers` stand in messages.
  void add(ncclComm_t comm, std::string name, std::string peers);
  /// Before `comm` is destroyed. @returns false when the watchdog has called it off: then it is gone already.
  [[nodiscard]] bool remove(ncclComm_t comm);

  /// A group of messages is about to be queued: queueing may wait for peers, too.
  void announce(ncclComm_t comm, std::string what, double deadline_seconds);
  /// The call that queues the group announced last has come back, whatever it said.
  void returned() { is_queueing_ = false; }
  /// The group announced last is in `queue`.
  void queued(ncclComm_t comm, const ExecSpace& queue);

  bool has_failed() const { return failed_; }
  /// @throws Error (ExitCode::communication), the reason, when it has called the communicators off.
  void require_alive() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Group {
    std::string what;
    double deadline_seconds;
    Clock::time_point since;  // announced, or the one before it done
    bool is_queued = false;
    QueueMark end = {};
  };
  struct Watched {
    std::string name;
    std::string peers;
    std::deque<Group> groups;  // not done, as far as was seen
  };

  void run();
  void look_after(ncclComm_t comm, Watched& watched);
  void call_off(ErrorReport reason);
  void end_job_if_stuck();

  int device_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::map<ncclComm_t, Watched> watched_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> is_queueing_ = false;  // the computing thread is inside NCCL
  ErrorReport reason_;                     // written before failed_ is set, and never again
  std::thread thread_;                     // last: it uses the others
};

}  // namespace espalier
