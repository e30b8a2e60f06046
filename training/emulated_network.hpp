// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/process_mesh.hpp"
#include "training/run_config.hpp"

namespace espalier {

/// As how many bytes each byte counts that is sent along an axis; of dp what its gradients' reductions send.
double message_scale(const RunConfig::Emulate& emulate, Axis axis);

/// From now on messages take the time that [emulate] gives them. Collective, between messages.
void emulate_network(const RunConfig::Emulate& emulate, const ProcessMesh& mesh);

}  // namespace espalier
