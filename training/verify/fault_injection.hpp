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

/// Where this rank believes that its shards lie, for what hands them their weights.
std::vector<Parameter> with_fault(InjectedFault fault, std::vector<Parameter> parameters);

/// From now on the trainer makes the mistake in each step, as long as what is returned lives, and the mesh.
template <class P>
std::unique_ptr<StepObserver> inject(InjectedFault fault, Trainer<P>& trainer, const ProcessMesh& mesh);

}  // namespace espalier
