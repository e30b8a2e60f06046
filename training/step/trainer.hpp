// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/ops/gradient_norm.hpp"
#include "core/optim/adamw.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "training/config/run_config.hpp"
#include "training/config/run_layout.hpp"
#include "training/step/forward_backward.hpp"
#include "training/step/loss_scaler.hpp"
#include "training/step/spike_guard.hpp"
#include "training/step/step_transfers.hpp"
#include "training/step/token_counts.hpp"

namespace espalier {

/// What one optimizer step did. The same on every rank, but for the seconds and bytes.
struct StepReport {
  Index step = 0;  ///< counts from 1
  double loss = 0;
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  IndexRange samples;     ///< global samples of the step
  TokenCounts counts;     ///< of the step
  Index tokens = 0;       ///< trained on so far
  Index passed_over = 0;  ///< samples, since the start of the run
  bool stop = false;      ///< some rank asked to stop
  double loss_scale = 1;  ///< that the gradients were computed with
  Judgement judgement;    ///< how loss and norm compare with those of the steps before
  bool skipped = false;   ///< nothing was updated: a spike, gradients that overflowed under the loss scale, or no token
                          ///< that counts
  Index skipped_steps = 0;  ///< since the start of the run
  bool rollback = false;    ///< nothing was updated, and the step does not count: the run is to go back
  double step_seconds = 0;
  PhaseSeconds seconds;
  std::array<std::uint64_t, num_axes> bytes_sent{};  ///< by axis; dp with all its groups
  MessageTransit transit;
};

/// This rank's share of a model, its optimizer and its data: one step at a time, on any layout. Opens no file but the
/// token files, prints nothing.
template <class P>
class Trainer {
 public:
  /// Collective over the mesh, whose layout is that of `layout`. Allocates everything a step needs and initialises the
  /// weights from the seed. `mesh` must outlive it.
  Trainer(const ExecSpace& exec, const RunConfig& config, const Layout& layout, const ProcessMesh& mesh);

  /// One step: the gradients, then the update. `stop_requested` is asked when the gradients are there; the yes of any
  /// rank comes back as report.stop on all of them.
  ///
  /// One rank waits for its device once, when the update is queued: the device itself leaves the weights as they are
  /// where loss or norm is not finite or so high that the step is to be judged first. Only a spike that the policy
  /// continues with is then updated by a second call. Several ranks wait before the update, since MPI adds up their
  /// losses and norms, and for their messages (parallel/collectives/mpi_buffer.hpp); targets that do not all count are
  /// counted in host memory. Under loss scaling a step whose gradients are not finite is skipped on all ranks, data
  /// included. What becomes of spikes, and of other losses and gradients that are not finite, is the policy's
  /// (stability.on_spike).
  /// @throws Error (numerical) for a loss or gradient that is not finite where the policy is to continue, before the
  /// weights change; where a lower loss scale does not help; and where too many steps in a row are skipped.
  StepReport step(const std::function<bool()>& stop_requested = {});

  /// The first half: data, forward and backward of all micro-batches, reduction, global norm.
  StepReport compute_gradients(const std::function<bool()>& stop_requested = {});
  /// The second half: judging the step, then clipping, update, gathering of weights.
  void update(StepReport& report);

  /// Called on every rank before the update of a step that is a spike or not finite, whatever comes of it: the weights
  /// are those that the step was computed with.
  void observe_anomalies(std::function<void(const StepReport&)> observer) { anomaly_observer_ = std::move(observer); }

  /// Called with the micro-batches of each step, which it may change, before they are computed.
  void decorate_batches(std::function<void(std::vector<TokenBatch>&)> decorator) {
    batch_decorator_ = std::move(decorator);
  }

  /// Mean loss over the validation files, the same on every rank. Between batches, about twice a second, `must_stop` is
  /// asked by all ranks and gives all the same answer; after a yes there is no loss.
  std::optional<double> evaluate(const std::function<bool(Index batches_done, Index batches)>& must_stop = {});
  bool has_validation() const { return validation_.has_value(); }
  const TokenLoader& loader() const { return loader_; }
  const std::optional<SequentialLoader>& validation() const { return validation_; }

  /// Mean loss over the first samples of the next step, forward only: the same number on any layout, up to rounding,
  /// so that a checkpoint can tell whether it was resumed rightly. Costs one forward pass for each micro-batch that the
  /// samples fill; next_samples() are one on each replica.
  double next_loss(Index num_samples);
  /// The same of the first samples of the step just taken. @pre a step has been taken
  double past_loss(Index num_samples);
  Index next_samples() const { return config_.layout.micro_batch * mesh_->dp().size(); }

  /// Logits (rows, V) of what follows the tokens in these rows of (B T), on every rank: forward only, in the arrays of
  /// evaluate(), without dropout. Nothing that training depends on changes. Collective.
  std::vector<float> next_logits(const Batch& batch, std::span<const Index> rows);

  const ParameterStore<Compute<P>>& parameters() const { return parameters_; }
  const AdamW<Compute<P>>& optimizer() const { return optimizer_; }
  const PipelineSchedule& schedule() const { return schedule_; }
  const GradientReducer<State<Compute<P>>>& reducer() const { return reducer_; }
  const Decoder<P>& model() const { return model_; }
  Index steps_done() const { return steps_done_; }
  Index data_position() const { return loader_.position(); }
  Index tokens() const;                                        ///< trained on so far
  double last_loss() const { return last_loss_; }              ///< of the last step that had a finite one
  const std::string& tokenizer() const { return tokenizer_; }  ///< that made the token files; empty: unknown
  /// Of token files that name none.
  void name_tokenizer(const std::string& name) { tokenizer_ = tokenizer_.empty() ? name : tokenizer_; }

  /// What the token files hold (training/config/data_files.hpp), for checkpoints; null: it has not been looked at.
  const nlohmann::json& data_files() const { return data_files_; }
  void set_data_files(nlohmann::json contents) { data_files_ = std::move(contents); }

  /// The flat ranges in which this rank stands for all that hold the same: every element of the model is in those of
  /// one rank. Of the weights, and of what lies in owned() only: reduced gradients and moments.
  const std::vector<IndexRange>& counted_weights() const { return counted_weights_; }
  const std::vector<IndexRange>& counted_owned() const { return counted_owned_; }

  /// After the weights and moments have been loaded: goes on after `steps_done` at sample `data_position`.
  void restore(Index steps_done, Index data_position, double last_loss);

  /// Samples that this run never trains on: see TokenLoader.
  const std::vector<IndexRange>& passed_over() const { return loader_.passed_over(); }
  void set_passed_over(std::vector<IndexRange> samples) { loader_.set_passed_over(std::move(samples)); }
  SampleIndex::Place place(Index global_sample) const { return loader_.place(global_sample); }

  SpikeGuard& spike_guard() { return spike_guard_; }
  const SpikeGuard& spike_guard() const { return spike_guard_; }
  LossScaler& loss_scaler() { return loss_scaler_; }
  const LossScaler& loss_scaler() const { return loss_scaler_; }

 private:
  void forward(const std::vector<Batch>& batches, double weight);  // adds to the model's loss
  /// Over all replicas: without a look at them `most_tokens` where all targets count.
  TokenCounts counts_of(const std::vector<Batch>& batches, Index most_tokens) const;
  /// What `forward_all` leaves in the model's loss, on every rank; 0 where it says that it has not come to the end.
  double mean_loss(const std::function<bool()>& forward_all);
  double mean_loss(const std::vector<Batch>& batches, Index most_tokens);
  StepContext<P> context() { return {exec_, model_, *mesh_, reducer_, gatherer_, units_, transit_, times_}; }
  std::array<std::uint64_t, num_axes> bytes_so_far() const;
  [[noreturn]] void give_up(const StepReport& report) const;
  void skip_overflow(const StepReport& report);
  StepReport queue_gradients();
  void take_results(StepReport& report, const std::function<bool()>& stop_requested);  // waits for the device
  void queue_update(const StepReport& report, const std::optional<UpdateLimits>& limits);
  void judge(StepReport& report);
  void finish(StepReport& report, bool is_queued);

  ExecSpace exec_;
  RunConfig config_;
  const ProcessMesh* mesh_;
  LearningRate learning_rate_;
  ParameterStore<Compute<P>> parameters_;
  Decoder<P> model_;
  std::string tokenizer_;
  nlohmann::json data_files_;
  TokenLoader loader_;
  std::optional<SequentialLoader> validation_;
  PipelineSchedule schedule_;
  UnitList units_;
  GradientReducer<State<Compute<P>>> reducer_;
  WeightGatherer<Compute<P>> gatherer_;
  AdamW<Compute<P>> optimizer_;
  std::vector<IndexRange> counted_weights_;
  std::vector<IndexRange> counted_owned_;
  SquaredNorm squared_norm_;
  Tensor<double, 0> gradient_norm_;
  Tensor<double, 0> clip_;
  StepTransfers transfers_;
  Index steps_done_ = 0;
  double last_loss_ = 0;
  LossScaler loss_scaler_;
  MessageTransit transit_;
  ComputeTimes<Compute<P>> times_;
  SpikeGuard spike_guard_;
  std::function<void(const StepReport&)> anomaly_observer_;
  std::function<void(std::vector<TokenBatch>&)> batch_decorator_;
};

}  // namespace espalier
