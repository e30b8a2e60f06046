// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/forward_backward.hpp"

#include "core/kokkos_compat.hpp"

namespace espalier {
namespace {

// Marks the segments of a block, which backward has just left.
template <class S>
void mark_block_ready(GradientReducer<S>& reducer, int block) {
  for (std::size_t i = 0; i < reducer.segments().size(); ++i)
    if (reducer.segments()[i].block == block)
      reducer.mark_ready(static_cast<int>(i));
}

}  // namespace

template <class T>
void forward_backward(const ExecSpace& exec, Gpt<T>& model, const std::vector<Batch>& microbatches,
                      const PipelineSchedule& schedule, GradientReducer<State<T>>& reducer, double loss_scale,
                      PhaseSeconds& seconds) {
  const int num_slots = slots_needed(schedule);
  for (const Operation& operation : schedule) {
    const Batch& batch = microbatches.at(static_cast<std::size_t>(operation.microbatch));
    const int slot = operation.microbatch % num_slots;
    if (operation.kind == OperationKind::forward) {
      const PhaseTimer timer(seconds, Phase::forward);
      model.forward(exec, slot, {batch.inputs.data(), batch.targets.data()}, loss_scale);
      compat::fence(exec, "espalier::forward_backward: the phase's time is its own");
    } else {
      const PhaseTimer timer(seconds, Phase::backward);
      model.backward(exec, slot, [&](int block) {
        if (operation.reduces)
          mark_block_ready(reducer, block);
        reducer.progress();
      });
      compat::fence(exec, "espalier::forward_backward: the phase's time is its own");
    }
  }
}

template void forward_backward<float>(const ExecSpace&, Gpt<float>&, const std::vector<Batch>&, const PipelineSchedule&,
                                      GradientReducer<float>&, double, PhaseSeconds&);
template void forward_backward<double>(const ExecSpace&, Gpt<double>&, const std::vector<Batch>&,
                                       const PipelineSchedule&, GradientReducer<double>&, double, PhaseSeconds&);

}  // namespace espalier
