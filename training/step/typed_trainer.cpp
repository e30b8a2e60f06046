// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/typed_trainer.hpp"

#include <vector>

#include "io/checkpoint/checkpoint_names.hpp"
#include "parallel/reduction/unique_ranges.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/step/logits_to_host.hpp"

namespace espalier {
namespace {

// Allocates weights and gradients first: the reducer is built on them.
template <class T>
GradientReducer<State<T>> make_reducer(const ExecSpace& exec, const ProcessMesh& mesh, ParameterStore<T>& parameters,
                                       const RunConfig& config, const Layout& layout) {
  parameters.lay_out();
  const ReducerOptions options = reducer_options(config, layout, mesh.pp().rank());
  const UnitBuffers buffers = unit_buffers(layout, mesh.pp().rank());
  const ReductionPlan plan = plan_reduction(parameters.segments(), parameters.parameters(), mesh.reductions().ranks(),
                                            options, static_cast<Index>(sizeof(State<T>)));
  parameters.allocate(plan.weight_sharding(layout.zero_stage, buffers.weights),
                      plan.gradient_sharding(buffers.gradients));
  return GradientReducer<State<T>>(exec, mesh.reductions(), parameters.gradients(), parameters.segments(),
                                   parameters.parameters(), options);
}

// Where the ranges lie in the held gradients.
template <class S>
std::vector<SquaredNorm::Range> norm_ranges(const FlatStorage<S>& gradients, const std::vector<IndexRange>& ranges) {
  std::vector<SquaredNorm::Range> result;
  for (const IndexRange& range : ranges)
    result.push_back({gradients.offset_of(range.begin), range.size()});
  return result;
}

}  // namespace

template <class P>
TypedTrainer<P>::TypedTrainer(const ExecSpace& exec, const RunConfig& config, const Layout& layout,
                              const ProcessMesh& mesh)
    : Trainer(exec, config, layout, mesh),
      model_(store_, config.model.shape, layout.chunks().at(static_cast<std::size_t>(mesh.pp().rank())),
             TensorParallel<Compute<P>>(mesh.tp(), layout.sequence_parallel)),
      reducer_(make_reducer(exec, mesh, store_, config, layout)),
      gatherer_(exec, mesh.reductions(), store_.weights(), reducer_.plan()),
      optimizer_(store_, config.optimizer.adamw, reducer_.owned()),
      unique_weights_(layout.zero_stage == 3 ? unique_ranges(store_.parameters(), reducer_.owned(), mesh.layout(),
                                                             mesh.world().rank(), true)
                                             : unique_ranges(store_.parameters(), {{0, store_.flat_size()}},
                                                             mesh.layout(), mesh.world().rank(), false)),
      unique_owned_(unique_ranges(store_.parameters(), reducer_.owned(), mesh.layout(), mesh.world().rank(),
                                  layout.zero_stage > 0)),
      squared_norm_(exec, norm_ranges(store_.gradients(), unique_owned_)),
      times_(exec_, mesh.world(), model_.tensor().enqueued()) {
  constexpr bool has_own_residual = !std::is_same_v<Residual<P>, Compute<P>>;
  ESPALIER_ASSERT(
      has_own_residual == (has_master_weights<Compute<P>> && config.precision.residual == NumberType::state),
      "the trainer's residual stream is of another type than the config's");
  model_.use_graphs(config.run.cuda_graphs);
  model_.overwrite_layer_gradients(!reducer_.plan().units.empty());
  model_.set_dropout_seed(static_cast<std::uint64_t>(config.run.seed));
  model_.plan_activations(config.layout.micro_batch, config.sequence_length,
                          activation_memory(schedule_, layout.chunks().at(static_cast<std::size_t>(mesh.pp().rank())),
                                            config.data.separates_documents()));
  mesh.tp().scratch<unsigned char>(tensor_scratch_bytes(config.model.shape, layout, layout.has_head(mesh.pp().rank()),
                                                        memory_options(config, layout, types_of<P>())));
  store_.initialize(exec_, static_cast<std::uint64_t>(config.run.seed));
  optimizer_.initialize_master_weights(exec_, static_cast<std::uint64_t>(config.run.seed));
  if constexpr (std::is_same_v<Compute<P>, float16>)
    loss_scaler_ = LossScaler(config.precision.loss_scale);
}

template <class P>
void TypedTrainer<P>::begin_gradients() {
  model_.begin_gradients(exec_);
  reducer_.begin_step();
}

template <class P>
void TypedTrainer<P>::forward(const std::vector<TokenBatch>& batches) {
  PhaseSeconds seconds;
  forward_only(context(), batches, seconds);
}

template <class P>
double TypedTrainer<P>::finish_reduction() {
  reducer_.wait();
  return reducer_.bubble_seconds();
}

template <class P>
std::uint64_t TypedTrainer<P>::reduction_bytes() const {
  std::uint64_t bytes = gatherer_.bytes_sent();
  for (const auto& [group, traffic] : reducer_.traffic())
    bytes += traffic.bytes;
  return bytes;
}

template <class P>
std::vector<float> TypedTrainer<P>::logits_of(Index row) {
  return logits_to_host(exec_, model_.evaluated_logits(exec_, row), config_.model.shape.vocab_size, &mesh_->tp());
}

template <class P>
TrainedArrays TypedTrainer<P>::arrays() const {
  const FlatArray weights = weights_of(store_);
  return {.weights = weights,
          .master_weights = has_master_weights<Compute<P>>
                                ? FlatArray(weights_group, optimizer_.master_weights(), optimizer_.owned())
                                : weights,
          .exp_avg = {exp_avg_group, optimizer_.exp_avg(), optimizer_.owned()},
          .exp_avg_sq = {exp_avg_sq_group, optimizer_.exp_avg_sq(), optimizer_.owned()},
          .gradients = {"gradients", store_.gradients().values(), store_.gradients().held()},
          .flat_size = store_.flat_size()};
}

#define ESPALIER_INSTANTIATE(P) template class TypedTrainer<P>;
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

std::unique_ptr<Trainer> make_trainer(const ExecSpace& exec, const RunConfig& config, const Layout& layout,
                                      const ProcessMesh& mesh) {
  return with_precision(config, [&]<class P>() -> std::unique_ptr<Trainer> {
    return std::make_unique<TypedTrainer<P>>(exec, config, layout, mesh);
  });
}

}  // namespace espalier
