// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/group_key.hpp"
#include "parallel/collectives/communicator.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"
#include "training/config/run_config.hpp"

// What --emulate says of operations and messages.

namespace espalier {

/// Seconds that an operation of a chunk of `layers`, which is this part of the model in forward order, is to last; 0:
/// as long as it does.
double emulated_seconds(const RunConfig::Emulate& emulate, OperationKind kind, Index layers, int part);

/// An operation of this rank lasts so many times as long.
double slow_factor(const RunConfig::Emulate& emulate, int world_rank);

/// As how many bytes each byte counts that is sent along an axis.
double message_scale(const RunConfig::Emulate& emulate, Axis axis);

/// Whether --emulate scales the reduction of a group: not of vectors that tensor ranks sum as well (norms, under
/// sequence parallelism), which weigh much more beside the matrices of a tiny model than beside those it stands for.
bool has_message_scale(const GroupKey& group);

/// The same of what the reduction of a group of parameters sends.
double message_scale(const RunConfig::Emulate& emulate, const GroupKey& group);

/// From now on messages take the time that --emulate gives them. Collective, between messages.
void emulate_network(const RunConfig::Emulate& emulate, const Communicator& world);

}  // namespace espalier
