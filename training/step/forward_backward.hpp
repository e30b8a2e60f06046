// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "core/phases.hpp"
#include "core/scalars.hpp"
#include "models/activation_memory.hpp"
#include "models/decoder.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "parallel/reduction/gradient_reducer.hpp"
#include "parallel/reduction/weight_gatherer.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"
#include "parallel/schedule/unit_actions.hpp"
#include "training/step/compute_times.hpp"

namespace espalier {

/// How long messages between stages were on their way, of those that this rank waited for before they were sent: only
/// of them does a receiver see the whole way. What tells a slow link from a late sender.
struct MessageTransit {
  struct Sum {
    Index messages = 0;
    double seconds = 0;
    double mean() const { return messages > 0 ? seconds / static_cast<double>(messages) : 0; }
  };
  Sum activations;
  Sum gradients;

  Sum& of(OperationKind receive) { return receive == OperationKind::receive_activations ? activations : gradients; }
};

/// What a step works on; all of it outlives the step.
template <class P>
struct StepContext {
  const ExecSpace& exec;
  Decoder<P>& model;
  const ProcessMesh& mesh;
  GradientReducer<State<Compute<P>>>& reducer;
  WeightGatherer<Compute<P>>& gatherer;
  const UnitList& units;
  MessageTransit& transit;  ///< of this step, added to
  ComputeTimes<Compute<P>>& times;
};

/// Runs the list of one step up to its optimizer operation: adds to the model's loss and gradients, each micro-batch
/// with its weight, sends and receives, and lets the reducer know as soon as gradients are final. Around the kernels of
/// each layer it does what the list of units says.
/// reducer.wait() is the caller's, and so is times.account(): with one rank all is only enqueued.
template <class P>
void forward_backward(const StepContext<P>& context, const std::vector<TokenBatch>& microbatches,
                      const PipelineSchedule& schedule, PhaseSeconds& seconds);

/// Runs one batch after another forward through all stages, adding to the model's loss. Keeps nothing for backward.
template <class P>
void forward_only(const StepContext<P>& context, const std::vector<TokenBatch>& batches, PhaseSeconds& seconds);

}  // namespace espalier
