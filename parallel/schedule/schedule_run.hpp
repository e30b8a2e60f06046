// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

struct MeshLayout;

/// Seconds of each thing a list can do; what is not given costs nothing.
struct ScheduleCosts {
  std::function<double(int stage, const Operation&)> compute = {};  ///< every operation that is no message
  std::function<double(int stage, const Operation&)> message = {};  ///< a send: from its start to its arrival
  /// What computes begins when all that its rank has sent is received: as where CUDA waits for the whole device, in
  /// which NCCL's sends wait for their receivers, because it loads a kernel at its first use.
  bool computing_waits_for_sends = false;
};

/// One operation that was run. What waits for others starts when they are there: waiting is no part of an operation.
struct ScheduleEvent {
  int rank = 0;
  std::size_t index = 0;  ///< in the rank's list
  double start = 0;
  double end = 0;
};

struct ScheduleRun {
  std::vector<ScheduleEvent> events;      ///< by (start, rank), but never an effect before its cause
  std::vector<std::size_t> num_run = {};  ///< of each rank's list; less than its length where the rank waits for ever
  bool complete = false;
};

/// Runs the lists of all ranks of a layout, abstractly. A send never blocks and takes no time of its rank. A receive
/// waits for the next message of its kind from its peer (MPI keeps the order of messages with one tag). An operation
/// with tensor collectives waits for its tp group, reduce and gather_weights for their dp group, tied_reduce for the
/// replicas of the first and the last stage, optimizer (the global norm) for all ranks. The outcome does not depend on
/// who goes first: each rank waits for one thing at a time, and nothing is taken from anybody.
ScheduleRun run_schedules(const std::vector<const PipelineSchedule*>& ranks, const MeshLayout& layout,
                          const ScheduleCosts& costs = {});

bool is_send(OperationKind kind);
bool is_receive(OperationKind kind);

/// The kind of receive that takes a send, and the other way round.
OperationKind counterpart(OperationKind kind);

}  // namespace espalier
