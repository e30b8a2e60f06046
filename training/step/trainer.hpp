// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/ops/gradient_norm.hpp"
#include "core/phases.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "parallel/schedule/unit_actions.hpp"
#include "training/config/run_config.hpp"
#include "training/config/run_layout.hpp"
#include "training/step/compute_times.hpp"
#include "training/step/flat_blocks.hpp"
#include "training/step/loss_scaler.hpp"
#include "training/step/message_transit.hpp"
#include "training/step/spike_guard.hpp"
#include "training/step/step_transfers.hpp"
#include "training/step/token_counts.hpp"

namespace espalier {

/// The result of one optimizer step. The same on every rank, but for the seconds and bytes.
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
  bool rollback = false;    ///< nothing was updated, and the step does not count: the run is to roll back
  double step_seconds = 0;
  PhaseSeconds seconds;
  std::array<std::uint64_t, num_axes> bytes_sent{};  ///< by axis; dp with all its groups. Complete after update()
  MessageTransit transit;
};

/// What this rank holds of the arrays that training changes. They lie in the trainer.
struct TrainedArrays {
  FlatArray weights;         ///< that the model computes with
  FlatArray master_weights;  ///< in the state type; the weights themselves where they are of that type
  FlatArray exp_avg;
  FlatArray exp_avg_sq;
  FlatArray gradients;
  Index flat_size = 0;  ///< of the flat arrays, of which ranges are held

  bool has_master_weights() const { return master_weights.type != weights.type; }
  std::vector<FlatArray> weights_and_master_weights() const {
    return has_master_weights() ? std::vector{weights, master_weights} : std::vector{weights};
  }
};

/// What to do where the training diverged: text of errors.
inline constexpr const char* todo_when_diverged = "lower optimizer.learning_rate or lengthen optimizer.warmup_steps";

/// This rank's part of a model, one step at a time, on any layout. It owns the parameters, the optimizer and the
/// data loaders. Opens no file but the token files, prints nothing. The precision is that of the class behind it
/// (training/step/typed_trainer.hpp).
class Trainer {
 public:
  virtual ~Trainer() = default;
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// One step: the gradients, then the update. `stop_requested` is called when the gradients are computed; report.stop
  /// is true on all ranks if it was true on any.
  ///
  /// One rank waits for its device once, after it has enqueued the update. The device skips this update if loss or norm
  /// is not finite, or high enough to be judged; a spike that the policy continues with is then updated by a second
  /// call. Several ranks also wait at the end of backward, before the update, since MPI sums their losses and norms,
  /// and for their messages (parallel/collectives/mpi_buffer.hpp). If not all targets count, they are counted in host
  /// memory. Under loss scaling a step whose gradients are not finite is skipped on all ranks, data included. The
  /// policy (stability.on_spike) decides about spikes, and about other losses and gradients that are not finite.
  /// @throws Error (numerical) for a loss or gradient that is not finite where the policy is to continue, before the
  /// weights change; where a lower loss scale does not help; and where too many steps in a row are skipped.
  StepReport step(const std::function<bool()>& stop_requested = {});

  /// The first half: data, forward and backward of all micro-batches, reduction, global norm.
  StepReport compute_gradients(const std::function<bool()>& stop_requested = {});
  /// The second half: judges the step, then clips, updates and gathers weights.
  void update(StepReport& report);

  /// `observer` is called on every rank before the update of a step that is a spike or not finite, for any policy. The
  /// weights are those that the step was computed with.
  void observe_anomalies(std::function<void(const StepReport&)> observer) { anomaly_observer_ = std::move(observer); }

  /// `decorator` is called with the micro-batches of each step before they are computed, and may change them.
  void decorate_batches(std::function<void(std::vector<TokenBatch>&)> decorator) {
    batch_decorator_ = std::move(decorator);
  }

  /// Mean loss over the validation files, the same on every rank. All ranks call `must_stop` between batches, about
  /// twice a second; it must return the same on all. After a yes there is no loss.
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

  /// Those of which this rank holds at least a part, in flat order.
  virtual const std::vector<Parameter>& parameters() const = 0;
  virtual TrainedArrays arrays() const = 0;
  ScalarType compute_type() const { return arrays().weights.type; }
  const PipelineSchedule& schedule() const { return schedule_; }
  Index steps_done() const { return steps_done_; }
  Index data_position() const { return loader_.position(); }
  Index tokens() const;                                        ///< trained on so far
  double last_loss() const { return last_loss_; }              ///< of the last step that had a finite one
  const std::string& tokenizer() const { return tokenizer_; }  ///< that made the token files; empty: unknown
  /// Sets tokenizer() where the token files name none.
  void name_tokenizer(const std::string& name) { tokenizer_ = tokenizer_.empty() ? name : tokenizer_; }

  /// What the token files hold (training/config/data_files.hpp), for checkpoints; null: it has not been looked at.
  const nlohmann::json& data_files() const { return data_files_; }
  void set_data_files(nlohmann::json contents) { data_files_ = std::move(contents); }

  /// The unique_ranges() of this rank: every element of the model is in those of one rank. Of the weights, and of what
  /// lies in owned() only: reduced gradients and moments.
  virtual const std::vector<IndexRange>& unique_weights() const = 0;
  virtual const std::vector<IndexRange>& unique_owned() const = 0;

  /// After the weights and moments have been loaded: resumes after `steps_done` at sample `data_position`.
  void restore(Index steps_done, Index data_position, double last_loss);

  /// Samples that this run never trains on: see TokenLoader.
  const std::vector<IndexRange>& passed_over() const { return loader_.passed_over(); }
  void set_passed_over(std::vector<IndexRange> samples) { loader_.set_passed_over(std::move(samples)); }
  SampleIndex::Location locate(Index global_sample) const { return loader_.locate(global_sample); }

  SpikeGuard& spike_guard() { return spike_guard_; }
  const SpikeGuard& spike_guard() const { return spike_guard_; }
  LossScaler& loss_scaler() { return loss_scaler_; }
  const LossScaler& loss_scaler() const { return loss_scaler_; }

 protected:
  /// Collective over the mesh, whose layout is that of `layout`. `mesh` must outlive it.
  Trainer(const ExecSpace& exec, const RunConfig& config, const Layout& layout, const ProcessMesh& mesh);

  ExecSpace exec_;
  RunConfig config_;
  const ProcessMesh* mesh_;
  PipelineSchedule schedule_;
  UnitList units_;
  LossScaler loss_scaler_;
  MessageTransit transit_;

 private:
  // The members that depend on the precision.

  /// Begins the gradients of a step, and their reduction.
  virtual void begin_gradients() = 0;
  /// Runs the schedule of a step: adds to loss() and to the gradients.
  virtual void forward_backward(const std::vector<TokenBatch>& microbatches, PhaseSeconds& seconds) = 0;
  /// Forward only: adds to loss().
  virtual void forward(const std::vector<TokenBatch>& batches) = 0;
  virtual Tensor<double, 0> loss() const = 0;
  /// After forward() on the last stage: logits (V) of what follows the token in a row of (B T).
  virtual std::vector<float> logits_of(Index row) = 0;
  /// Waits for the sums of the gradients. @returns GradientReducer::bubble_seconds()
  virtual double finish_reduction() = 0;
  /// Enqueues gradient_squares(): the sum over the unique_owned() gradients of this rank, (1) on the device.
  virtual void square_gradients() = 0;
  virtual Tensor<double, 1> gradient_squares() const = 0;
  /// Enqueues the optimizer. `updates`: with this one.
  virtual void update_weights(double learning_rate, const Tensor<double, 0>& clip, Index updates) = 0;
  virtual void gather_updated_weights() = 0;
  /// Sent for gradients since begin_gradients(), and for weights since the start: only the difference between two
  /// moments of a step has a meaning.
  virtual std::uint64_t reduction_bytes() const = 0;
  virtual ComputeTimes& times() = 0;

  StepReport enqueue_gradients();
  void enqueue_update(const StepReport& report, const std::optional<UpdateLimits>& limits);
  std::array<std::uint64_t, num_axes> bytes_so_far() const;
  std::array<std::uint64_t, num_axes> bytes_of_step() const;
  /// Over all replicas; `max_tokens`, without counting, if all targets count.
  TokenCounts counts_of(const std::vector<Batch>& batches, Index max_tokens) const;
  /// The model's loss after `forward_all`, on every rank; 0 if `forward_all` returns false: it was stopped.
  double mean_loss(const std::function<bool()>& forward_all);
  double mean_loss(const std::vector<Batch>& batches, Index max_tokens);
  [[noreturn]] void give_up(const StepReport& report) const;
  void skip_overflow(const StepReport& report);
  void read_results(StepReport& report,
                    const std::function<bool()>& stop_requested);  // waits for the device; collective
  /// Forward only, each batch with this weight.
  void run_forward(const std::vector<Batch>& batches, double weight);
  void judge(StepReport& report);
  void judge_and_update(StepReport& report, bool is_enqueued);

  LearningRate learning_rate_;
  std::string tokenizer_;
  nlohmann::json data_files_;
  TokenLoader loader_;
  std::optional<SequentialLoader> validation_;
  Tensor<double, 0> gradient_norm_;
  Tensor<double, 0> clip_;
  StepTransfers transfers_;
  Index steps_done_ = 0;
  double last_loss_ = 0;
  std::array<std::uint64_t, num_axes> bytes_before_{};  // bytes_so_far() when the step began
  SpikeGuard spike_guard_;
  std::function<void(const StepReport&)> anomaly_observer_;
  std::function<void(std::vector<TokenBatch>&)> batch_decorator_;
};

}  // namespace espalier
