// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "core/optim/adamw.hpp"
#include "training/step/forward_backward.hpp"
#include "training/step/trainer.hpp"

namespace espalier {

/// A trainer whose model computes in the precision P (core/scalars.hpp).
template <class P>
class TypedTrainer final : public Trainer {
 public:
  /// Collective over the mesh, whose layout is that of `layout`. Allocates everything a step needs and initialises the
  /// weights from the seed. `mesh` must outlive it.
  TypedTrainer(const ExecSpace& exec, const RunConfig& config, const Layout& layout, const ProcessMesh& mesh);

  const ParameterStore<Compute<P>>& store() const { return store_; }
  const AdamW<Compute<P>>& optimizer() const { return optimizer_; }
  const GradientReducer<State<Compute<P>>>& reducer() const { return reducer_; }
  const Decoder<P>& model() const { return model_; }

  const std::vector<Parameter>& parameters() const override { return store_.parameters(); }
  TrainedArrays arrays() const override;
  const std::vector<IndexRange>& unique_weights() const override { return unique_weights_; }
  const std::vector<IndexRange>& unique_owned() const override { return unique_owned_; }

 private:
  void begin_gradients() override;
  void forward_backward(const std::vector<TokenBatch>& microbatches, PhaseSeconds& seconds) override {
    espalier::forward_backward(context(), microbatches, schedule_, seconds);
  }
  void forward(const std::vector<TokenBatch>& batches) override;
  Tensor<double, 0> loss() const override { return model_.loss(); }
  std::vector<float> logits_of(Index row) override;
  double finish_reduction() override;
  void square_gradients() override { squared_norm_.compute<State<Compute<P>>>(exec_, store_.flat_gradients()); }
  Tensor<double, 1> gradient_squares() const override { return squared_norm_.total(); }
  void update_weights(double learning_rate, const Tensor<double, 0>& clip, Index updates) override {
    optimizer_.step(exec_, learning_rate, clip, updates);
  }
  void gather_updated_weights() override { reducer_.gather_updated_weights(store_.weights()); }
  std::uint64_t reduction_bytes() const override;
  ComputeTimes& times() override { return times_; }
  StepContext<P> context() { return {exec_, model_, *mesh_, reducer_, gatherer_, units_, transit_, times_}; }

  ParameterStore<Compute<P>> store_;
  Decoder<P> model_;
  GradientReducer<State<Compute<P>>> reducer_;
  WeightGatherer<Compute<P>> gatherer_;
  AdamW<Compute<P>> optimizer_;
  std::vector<IndexRange> unique_weights_;
  std::vector<IndexRange> unique_owned_;
  SquaredNorm squared_norm_;
  ComputeTimes times_;
};

/// A trainer in the precision of the config: see the constructor of TypedTrainer.
std::unique_ptr<Trainer> make_trainer(const ExecSpace& exec, const RunConfig& config, const Layout& layout,
                                      const ProcessMesh& mesh);

}  // namespace espalier
