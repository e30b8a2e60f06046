// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "parallel/device/device_stream.hpp"
#include "parallel/observe/rank_progress.hpp"

namespace espalier {

/// @throws Error (ExitCode::communication) for a call of NCCL that failed, with NCCL's own words.
void require_nccl(ncclResult_t result, const char* call, ncclComm_t comm = nullptr);

/// Watches NCCL, whose messages run on streams while the host does not wait. A thread asks every communicator for
/// errors, and every group of messages whether it is done. When one fails or passes its deadline, it aborts
/// all communicators of the rank, so that no kernel waits on, and keeps the reason for the thread that computes, which
/// finds it at its next message. Where that does not end the rank, because a thread is inside NCCL or CUDA and does not
/// come back, a second thread, which asks nothing of either, ends the job. What a stream has waited for longer than a
/// moment stands in the rank's progress, for the report on who is where.
class NcclWatchdog {
 public:
  NcclWatchdog();
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  /// From now on `comm` is asked for errors; `name` and `peers` stand in messages. `progress` is that of the rank.
  void add(ncclComm_t comm, std::string name, std::string peers, ProgressWriter& progress);
  /// Before `comm` is destroyed. @returns false when the watchdog has aborted it: then it is gone already.
  [[nodiscard]] bool remove(ncclComm_t comm);

  /// A group of messages with these ranks of the world is about to be enqueued on `stream`. The call that enqueues it
  /// may wait for them, too. @throws Error as require_alive().
  void announce(ncclComm_t comm, std::string what, std::vector<int> world_ranks, double deadline_seconds,
                const ExecSpace& stream);
  /// The call that enqueues the group announced last has returned, with any result.
  void returned();
  /// The group announced last is enqueued on `stream`.
  void enqueued(ncclComm_t comm, const ExecSpace& stream);

  /// Aborts all communicators, if that is not done: the computing thread has failed, for `reason`, and frees memory
  /// of the device next, which waits for kernels that may wait for other ranks.
  void abort(const Error& reason);

  /// @throws Error (ExitCode::communication), the reason, when it has aborted the communicators.
  void require_alive();

 private:
  using Clock = std::chrono::steady_clock;
  struct Group {
    std::string what;
    std::vector<int> world_ranks;
    double deadline_seconds;
    Clock::time_point since;  // announced, or the one before it done
    StreamEvent begin = {};
    bool is_enqueued = false;
    StreamEvent end = {};
    std::optional<Clock::time_point> begun = {};  // seen to be what its stream is at
  };
  struct Watched {
    std::string name;
    std::string peers;
    ProgressWriter* progress;
    std::deque<Group> groups;  // not done, as far as was seen
    std::uint64_t num_done = 0;
  };

  void watch();
  void stand_by();
  bool stop_requested_within(std::chrono::milliseconds after);
  static void drop_done(Watched& watched, Clock::time_point now);
  void report_stream_wait(Clock::time_point now);
  void look_after(ncclComm_t comm, Watched& watched);
  void fail(ExitCode code, ErrorReport reason);
  void abort_all();

  int device_ = 0;
  std::mutex mutex_;
  std::mutex stop_mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::map<ncclComm_t, Watched> watched_;
  bool is_enqueueing_ = false;  // the computing thread is inside NCCL
  std::atomic<bool> failed_ = false;
  std::atomic<bool> is_known_ = false;  // to the computing thread, that all is aborted
  std::shared_ptr<std::atomic<bool>> is_aborted_ = std::make_shared<std::atomic<bool>>(false);  // by NCCL, too
  std::atomic<Clock::time_point> last_look_{Clock::now()};
  std::atomic<double> longest_deadline_ = 0;                     // seconds, of what was announced
  std::pair<const Watched*, std::uint64_t> reported_wait_ = {};  // the one in the rank's progress: number num_done
  Clock::time_point next_sign_of_life_ = {};
  Error reason_{ExitCode::communication, {}};  // written before failed_ is set, and never again
  std::thread watch_;                          // last: they use the others
  std::thread stand_by_;
};

}  // namespace espalier
