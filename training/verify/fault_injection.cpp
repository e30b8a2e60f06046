// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/verify/fault_injection.hpp"

#include <utility>

#include "training/config/with_compute_type.hpp"
#include "training/step/typed_trainer.hpp"

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

// Lets each layer compute with other weights than those that were gathered for it.
template <class T>
class WrongLayers : public StepObserver {
 public:
  WrongLayers(InjectedFault fault, const FlatStorage<T>& weights, StepObservers& observers)
      : fault_(fault), weights_(weights), observers_(observers), before_("before", weights.buffers().extent(0)) {
    Kokkos::deep_copy(before_, weights_.buffers());
    observers_.add(*this);
  }
  ~WrongLayers() override { observers_.remove(*this); }
  WrongLayers(const WrongLayers&) = delete;
  WrongLayers& operator=(const WrongLayers&) = delete;

  void layer_gathered(int unit) override {
    Kokkos::fence();
    const auto of = [&](const Tensor<T, 1>& buffers, int buffer) {
      const auto size = static_cast<Index>(buffers.extent(0)) / weights_.num_buffers();
      return Tensor<T, 1>(buffers.data() + buffer * size, size);
    };
    const int ours = weights_.buffer_of(unit);
    const Tensor<T, 1> gathered = of(weights_.buffers(), ours);
    const Tensor<T, 1> wrong = of(before_, fault_ == InjectedFault::late_gather ? ours : last_);
    const Tensor<T, 1> right("right", gathered.extent(0));
    Kokkos::deep_copy(right, gathered);
    Kokkos::deep_copy(gathered, wrong);
    Kokkos::deep_copy(of(before_, ours), right);
    last_ = ours;
    Kokkos::fence();
  }

 private:
  InjectedFault fault_;
  FlatStorage<T> weights_;
  StepObservers& observers_;
  Tensor<T, 1> before_;  // what was gathered last into each buffer
  int last_ = 0;         // the buffer of the layer before
};

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

std::unique_ptr<StepObserver> inject(InjectedFault fault, Trainer& trainer, const RunConfig& config,
                                     const ProcessMesh& mesh) {
  if (fault == InjectedFault::wrong_token_weight)
    trainer.decorate_batches([](std::vector<TokenBatch>& microbatches) {
      TokenWeight& weight = microbatches.front().weight;
      weight = {2 * weight.loss, 2 * weight.gradient};
    });
  return with_precision(config, [&]<class P>() -> std::unique_ptr<StepObserver> {
    const auto& typed = dynamic_cast<const TypedTrainer<P>&>(trainer);
    if (fault == InjectedFault::drop_all_reduce)
      drop_a_sum(typed.model().tensor());
    const FlatStorage<Compute<P>>& weights = typed.store().weights();
    if ((fault == InjectedFault::late_gather || fault == InjectedFault::released_layer) && weights.num_buffers() > 0)
      return std::make_unique<WrongLayers<Compute<P>>>(fault, weights, mesh.world().observers());
    return nullptr;
  });
}

}  // namespace espalier
