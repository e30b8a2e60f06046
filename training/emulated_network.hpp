// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/process_mesh.hpp"
#include "training/run_config.hpp"

namespace espalier {

/// As how many bytes each byte counts that is sent along an axis.
double message_scale(const RunConfig::Emulate& emulate, Axis axis);

/// The same of what the reduction of a group of parameters sends. Vectors that tensor ranks sum as well (norms, under
/// sequence parallelism) have no scale: beside the matrices of a tiny model they weigh much more than beside those that
/// it stands for.
double message_scale(const RunConfig::Emulate& emulate, ReductionGroup group);

/// From now on messages take the time that [emulate] gives them. Collective, between messages.
void emulate_network(const RunConfig::Emulate& emulate, const ProcessMesh& mesh);

}  // namespace espalier
