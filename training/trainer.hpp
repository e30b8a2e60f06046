// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>

#include "core/ops/norm.hpp"
#include "parallel/process_mesh.hpp"
#include "training/forward_backward.hpp"
#include "training/loss_scaler.hpp"
#include "training/run_config.hpp"
#include "training/run_layout.hpp"

namespace espalier {

/// What one optimizer step did. The same on every rank, but for the seconds and bytes.
struct StepReport {
  Index step = 0;  ///< counts from 1
  double loss = 0;
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  Index tokens = 0;         ///< seen so far
  bool stop = false;        ///< some rank asked to stop
  double loss_scale = 1;    ///< that the gradients were computed with
  bool skipped = false;     ///< they overflowed, and nothing was updated
  Index skipped_steps = 0;  ///< since the start of the run
  double step_seconds = 0;
  PhaseSeconds seconds;
  std::array<std::uint64_t, num_axes> bytes_sent{};  ///< by axis; dp with all its groups
};

/// This rank's share of a model, its optimizer and its data: one step at a time, on any layout. Opens no file but the
/// token files, prints nothing.
template <class T>
class Trainer {
 public:
  /// Collective over the mesh, whose layout is that of `layout`. Allocates everything a step needs and initialises the
  /// weights from the seed. `mesh` must outlive it.
  Trainer(const ExecSpace& exec, const RunConfig& config, const RunLayout& layout, const ProcessMesh& mesh);

  /// One step: the gradients, then the update. `stop_requested` of any rank comes back as report.stop on all of them.
  /// Under loss scaling a step whose gradients are not finite is skipped on all ranks, data included.
  /// @throws Error (numerical) for a loss or gradient that is not finite, before the weights change; under loss scaling
  /// when a lower scale does not help.
  StepReport step(bool stop_requested = false);

  /// The first half: data, forward and backward of all micro-batches, reduction, global norm.
  StepReport compute_gradients(bool stop_requested = false);
  /// The second half: clipping, update, gathering of weights.
  void update(StepReport& report);

  /// Mean loss over the validation files, the same on every rank.
  double evaluate();
  bool has_validation() const { return validation_.has_value(); }

  /// Mean loss over the first samples of the next step, forward only: the same number on any layout, up to rounding,
  /// so that a checkpoint can tell whether it was resumed rightly. Costs one forward pass for each micro-batch that the
  /// samples fill; next_samples() are one on each replica.
  double next_loss(Index num_samples);
  Index next_samples() const { return config_.batch.micro_batch_size * mesh_->dp().size(); }

  const ParameterStore<T>& parameters() const { return parameters_; }
  const AdamW<T>& optimizer() const { return optimizer_; }
  const PipelineSchedule& schedule() const { return schedule_; }
  const GradientReducer<State<T>>& reducer() const { return reducer_; }
  const Gpt<T>& model() const { return model_; }
  Index steps_done() const { return steps_done_; }
  Index data_position() const { return loader_.position(); }
  double last_loss() const { return last_loss_; }
  const std::string& tokenizer() const { return tokenizer_; }  ///< that made the token files; empty: unknown

  /// The flat ranges in which this rank stands for all that hold the same: every element of the model is in those of
  /// one rank. Of the weights, and of what lies in owned() only: reduced gradients and moments.
  const std::vector<IndexRange>& counted_weights() const { return counted_weights_; }
  const std::vector<IndexRange>& counted_owned() const { return counted_owned_; }

  /// After the weights and moments have been loaded: goes on after `steps_done` at sample `data_position`.
  void restore(Index steps_done, Index data_position, double last_loss);

  LossScaler& loss_scaler() { return loss_scaler_; }
  const LossScaler& loss_scaler() const { return loss_scaler_; }

 private:
  double mean_loss(const std::vector<Batch>& batches, Index valid_tokens);
  StepContext<T> context() { return {exec_, model_, *mesh_, reducer_, config_.emulate}; }
  std::array<std::uint64_t, num_axes> bytes_so_far() const;
  void refuse_non_finite(const StepReport& report) const;
  void skip(const StepReport& report);
  void apply(StepReport& report);

  ExecSpace exec_;
  RunConfig config_;
  const ProcessMesh* mesh_;
  LearningRate learning_rate_;
  ParameterStore<T> parameters_;
  Gpt<T> model_;
  std::string tokenizer_;
  TokenLoader loader_;
  std::optional<SequentialLoader> validation_;
  PipelineSchedule schedule_;
  GradientReducer<State<T>> reducer_;
  AdamW<T> optimizer_;
  std::vector<IndexRange> counted_weights_;
  std::vector<IndexRange> counted_owned_;
  SquaredNorm squared_norm_;
  Tensor<double, 1> global_sum_;  // (1), of squares of all gradients
  Tensor<double, 0> gradient_norm_;
  Tensor<double, 0> clip_;
  Index steps_done_ = 0;
  double last_loss_ = 0;
  LossScaler loss_scaler_;
};

}  // namespace espalier
