// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "parallel/collectives/injected_fault.hpp"
#include "training/step/trainer.hpp"

namespace espalier {

/// The mesh of a trainer with this fault: see with_fault(InjectedFault, ReductionCommunicators).
ProcessMesh with_fault(InjectedFault fault, ProcessMesh mesh);

/// The config of this rank's trainer.
RunConfig with_fault(InjectedFault fault, RunConfig config, const ProcessMesh& mesh);

/// The parameters with the shards that this rank assumes, for loading their weights.
std::vector<Parameter> with_fault(InjectedFault fault, std::vector<Parameter> parameters);

/// From now on the trainer, of make_trainer() with this config, has the fault in each step, while the returned object
/// and the mesh live.
std::unique_ptr<StepObserver> inject(InjectedFault fault, Trainer& trainer, const RunConfig& config,
                                     const ProcessMesh& mesh);

}  // namespace espalier
