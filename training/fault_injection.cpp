// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/fault_injection.hpp"

#include <utility>

namespace espalier {
namespace {

constexpr long dropped_sum = 2;         // of a trainer's life
constexpr double wrong_distance = 1.5;  // of neighbouring positions

// The first matrix that two neighbours on the tensor axis hold equal shares of is swapped between them.
void swap_a_shard(std::vector<Parameter>& parameters) {
  for (Parameter& parameter : parameters) {
    const ParameterSpec& spec = parameter.spec;
    const Shard theirs{spec.shard.dim, spec.shard.part ^ 1, spec.shard.parts};
    const Index extent = spec.shape[static_cast<std::size_t>(spec.shard.dim)];
    if (spec.shape.size() < 2 || theirs.part >= theirs.parts || extent % theirs.parts != 0)
      continue;
    parameter.spec.shard = theirs;
    return;
  }
}

// What a missing sum leaves is our own summand.
template <class T>
void drop_a_sum(const TensorParallel<T>& tensor) {
  tensor.sum_rows_by([&tensor, sums = 0L](const ExecSpace& exec, const Tensor<T, 2>& ours) mutable {
    if (++sums != dropped_sum)
      return tensor.sum_over_ranks(exec, ours);
    if (tensor.sequence_parallel() && ours.data() != tensor.own_rows_of_workspace().data())
      Kokkos::deep_copy(exec, ours, tensor.own_rows_of_workspace());
  });
}

}  // namespace

ProcessMesh with_fault(InjectedFault fault, ProcessMesh mesh) {
  mesh.sum_gradients_over(with_fault(fault, mesh.reductions()));
  return mesh;
}

RunConfig with_fault(InjectedFault fault, RunConfig config, const ProcessMesh& mesh) {
  if (fault == InjectedFault::wrong_positions && mesh.tp().rank() + 1 == mesh.tp().size()) {
    RotaryConfig& rotary = config.model.shape.rotary;
    rotary.factor = (rotary.scaling == RotaryScaling::linear ? rotary.factor : 1) / wrong_distance;
    rotary.scaling = RotaryScaling::linear;
  }
  return config;
}

std::vector<Parameter> with_fault(InjectedFault fault, std::vector<Parameter> parameters) {
  if (fault == InjectedFault::swap_shards)
    swap_a_shard(parameters);
  return parameters;
}

template <class P>
void inject(InjectedFault fault, Trainer<P>& trainer) {
  if (fault == InjectedFault::drop_all_reduce)
    drop_a_sum(trainer.model().tensor());
  if (fault == InjectedFault::wrong_token_weight)
    trainer.decorate_batches([](std::vector<TokenBatch>& microbatches) {
      TokenWeight& weight = microbatches.front().weight;
      weight = {2 * weight.loss, 2 * weight.gradient};
    });
}

#define ESPALIER_INSTANTIATE(P) template void inject<P>(InjectedFault, Trainer<P>&);
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
