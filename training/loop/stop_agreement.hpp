// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "core/stopwatch.hpp"
#include "parallel/collectives/communicator.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// Ends a launch early, on all ranks together: by a request to any rank, run.max_duration or --stop-after.
class StopAgreement {
 public:
  /// @param stop_after steps of this launch; 0: no limit
  /// @param request what asks this rank to stop ("SIGTERM"), or nothing; may be empty
  /// @param note gets one line, on every rank, as soon as all know that they stop
  StopAgreement(const RunConfig& config, Index stop_after, const Communicator& world,
                std::function<std::string()> request, std::function<void(const std::string&)> note);

  /// Before the run begins only `request` counts: a launch with little time must come to its first step.
  void begin() { begun_ = true; }
  void step_begins() { ++steps_; }

  /// Must this rank stop after the present step? Does not communicate.
  bool is_asked();

  /// Must any rank stop? Collective until the answer is yes; then it stays yes.
  bool agree();

  /// All ranks already know whether one of them must stop. Collective the first time that one must.
  void agree_to(bool stop);

  bool is_agreed() const { return agreed_; }

  /// Of the first rank that has one: a signal may have come to one rank only.
  const std::string& cause() const { return cause_; }

 private:
  const RunConfig& config_;
  Index stop_after_;
  const Communicator& world_;
  std::function<std::string()> request_;
  std::function<void(const std::string&)> note_;
  Stopwatch since_launch_;
  bool begun_ = false;
  Index steps_ = 0;
  bool agreed_ = false;
  std::string cause_;  // before the ranks agree: this rank's own
};

}  // namespace espalier
