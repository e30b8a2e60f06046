// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "io/token_loader.hpp"
#include "models/gpt.hpp"
#include "parallel/gradient_reducer.hpp"
#include "parallel/pipeline_schedule.hpp"
#include "training/phases.hpp"

namespace espalier {

/// Runs the list of one step: adds to the model's loss and gradients, each micro-batch scaled by `loss_scale`, and lets
/// the reducer know as soon as gradients are final. reducer.wait() is the caller's.
template <class T>
void forward_backward(const ExecSpace& exec, Gpt<T>& model, const std::vector<Batch>& microbatches,
                      const PipelineSchedule& schedule, GradientReducer<State<T>>& reducer, double loss_scale,
                      PhaseSeconds& seconds);

}  // namespace espalier
