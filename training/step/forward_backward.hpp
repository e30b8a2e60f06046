// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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
#include "training/step/message_transit.hpp"

namespace espalier {

/// The objects that a step uses; they outlive it.
template <class P>
struct StepContext {
  const ExecSpace& exec;
  Decoder<P>& model;
  const ProcessMesh& mesh;
  GradientReducer<State<Compute<P>>>& reducer;
  WeightGatherer<Compute<P>>& gatherer;
  const UnitList& units;
  MessageTransit& transit;  ///< of this step, added to
  ComputeTimes& times;
};

/// Runs the list of one step up to its optimizer operation. It adds each micro-batch with its weight to the model's
/// loss and gradients, sends and receives, and notifies the reducer as soon as gradients are final. Around the kernels
/// of each layer it performs the actions of the list of units. With one rank everything is only enqueued; with several
/// it waits for the stream at its end. The caller calls reducer.wait() and times.wait_and_account().
template <class P>
void forward_backward(const StepContext<P>& context, const std::vector<TokenBatch>& microbatches,
                      const PipelineSchedule& schedule, PhaseSeconds& seconds);

/// Runs the batches forward through all stages, one after another, and adds to the model's loss. Saves nothing for
/// backward.
template <class P>
void forward_only(const StepContext<P>& context, const std::vector<TokenBatch>& batches, PhaseSeconds& seconds);

}  // namespace espalier
