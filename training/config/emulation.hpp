// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/group_key.hpp"
#include "io/config/toml_config.hpp"
#include "parallel/collectives/emulated_links.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"
#include "training/config/run_config.hpp"

// What --emulate says of operations and messages.

namespace espalier {

// The keys of emulation: of tests, benches and rehearsals, not of a config. Records of a run have them as [emulate].

/// What `train --emulate` is given: TOML files with a section [emulate], and settings "forward=10ms"; later ones win.
/// @throws Error (usage) that lists every problem of the first that has one.
RunConfig::Emulate read_emulation(const std::vector<std::string>& given);

/// The section [emulate] of a record.
void read_emulate_keys(ConfigReader& reader, RunConfig::Emulate& emulate);

/// All keys with their meanings, as TOML that reads back equal.
std::string all_emulate_keys(const RunConfig::Emulate& emulate = {});

/// The same of those that differ from their defaults; empty where none does.
std::string changed_emulate_keys(const RunConfig::Emulate& emulate);

/// The least seconds that an operation takes on a chunk of `layers`, which is this part of the model in forward order;
/// 0: its own time.
double emulated_seconds(const RunConfig::Emulate& emulate, OperationKind kind, Index layers, int part);

/// Factor by which operations of this rank take longer.
double slow_factor(const RunConfig::Emulate& emulate, int world_rank);

/// Factor by which --emulate multiplies the bytes that are sent along an axis.
double message_scale(const RunConfig::Emulate& emulate, Axis axis);

/// Whether --emulate scales the reduction of a group: not of vectors that tensor ranks sum as well (norms, under
/// sequence parallelism), which weigh much more beside the matrices of a tiny model than beside those it stands for.
bool has_message_scale(const GroupKey& group);

/// The same of what the reduction of a group of parameters sends.
double message_scale(const RunConfig::Emulate& emulate, const GroupKey& group);

/// The links that it imitates.
EmulatedLinks emulated_links(const RunConfig::Emulate& emulate);

/// From now on messages take the time that --emulate gives them. Collective, between messages.
void emulate_network(const RunConfig::Emulate& emulate, const Communicator& world);

}  // namespace espalier
