// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

struct MeshLayout;

/// Seconds of each operation of a list; what is not given takes no time.
struct ScheduleCosts {
  std::function<double(int stage, const Operation&)> compute = {};  ///< of operations other than messages
  std::function<double(int stage, const Operation&)> message = {};  ///< a send: from its start to its arrival
};

/// One operation that was run. Waiting for others is no part of it.
struct ScheduleEvent {
  int rank = 0;
  std::size_t index = 0;  ///< in the rank's list
  double start = 0;
  double end = 0;
};

struct ScheduleRun {
  std::vector<ScheduleEvent> events;      ///< by (start, rank), but never an effect before its cause
  std::vector<std::size_t> num_run = {};  ///< of each rank's list; less than its length in a deadlock
  bool complete = false;
};

/// Simulates the lists of all ranks of a layout. A send never blocks and takes no time of its rank. A receive
/// waits for the next message of its kind from its peer (MPI keeps the order of messages with one tag). An operation
/// with tensor collectives waits for its tp group, reduce and gather_weights for their dp group, tied_reduce for the
/// replicas of the first and the last stage, optimizer (the global norm) for all ranks. This is stricter than
/// training, where reduce and tied_reduce only start a sum. The outcome does not depend on
/// the order in which ranks run: each waits for one thing at a time, and takes nothing from another.
ScheduleRun run_schedules(const std::vector<const PipelineSchedule*>& ranks, const MeshLayout& layout,
                          const ScheduleCosts& costs = {});

bool is_send(OperationKind kind);
bool is_receive(OperationKind kind);

/// The kind of receive that matches a send, and the other way round.
OperationKind counterpart(OperationKind kind);

}  // namespace espalier
