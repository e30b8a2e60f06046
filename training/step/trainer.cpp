// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/trainer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/stopwatch.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/launch/failure.hpp"
#include "training/step/loaders.hpp"

namespace espalier {
namespace {

// The sign of a NaN means nothing, and depends on the order of operands; people would read it.
double unsigned_if_nan(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

std::vector<PipelineSchedule> proven_schedules(const RunConfig& config, const Layout& layout) {
  std::vector<PipelineSchedule> schedules = make_schedules(config, layout);
  require_proven(config, layout, schedules);
  return schedules;
}

}  // namespace

Trainer::Trainer(const ExecSpace& exec, const RunConfig& config, const Layout& layout, const ProcessMesh& mesh)
    : exec_(exec),
      config_(config),
      mesh_(&mesh),
      schedule_(proven_schedules(config, layout).at(static_cast<std::size_t>(mesh.pp().rank()))),
      units_(unit_list(layout, mesh.pp().rank(), schedule_)),
      learning_rate_(config.learning_rate()),
      loader_(open_training_loader(config, mesh, tokenizer_)),
      gradient_norm_(ledger_label(Category::workspace, "gradient_norm")),
      clip_(ledger_label(Category::workspace, "clip")),
      spike_guard_(config.stability) {
  validation_ = open_validation_loader(config, mesh, tokenizer_);
}

std::array<std::uint64_t, num_axes> Trainer::bytes_so_far() const {
  std::array<std::uint64_t, num_axes> bytes{};
  bytes[static_cast<std::size_t>(Axis::tp)] = mesh_->tp().traffic().bytes;
  bytes[static_cast<std::size_t>(Axis::pp)] = mesh_->pp().traffic().bytes;
  bytes[static_cast<std::size_t>(Axis::dp)] = reduction_bytes();
  return bytes;
}

std::array<std::uint64_t, num_axes> Trainer::bytes_of_step() const {
  std::array<std::uint64_t, num_axes> bytes = bytes_so_far();
  for (std::size_t axis = 0; axis < num_axes; ++axis)
    bytes[axis] -= bytes_before_[axis];
  return bytes;
}

StepReport Trainer::step(const std::function<bool()>& stop_requested) {
  const Stopwatch stopwatch;
  StepReport report;
  abort_links_on_error(mesh_->world(), [&] {
    report = enqueue_gradients();
    const bool is_enqueued = mesh_->world().size() == 1 && report.counts.valid_tokens > 0;
    if (is_enqueued)
      enqueue_update(report, spike_guard_.limits());
    read_results(report, stop_requested);
    judge_and_update(report, is_enqueued);
  });
  const double whole = stopwatch.seconds();
  report.seconds[Phase::other] = whole - report.seconds.total();
  report.step_seconds = whole - report.seconds[Phase::checkpoint];
  return report;
}

StepReport Trainer::compute_gradients(const std::function<bool()>& stop_requested) {
  StepReport report = enqueue_gradients();
  read_results(report, stop_requested);
  return report;
}

void Trainer::update(StepReport& report) { judge_and_update(report, false); }

StepReport Trainer::enqueue_gradients() {
  StepReport report;
  StepObservers& observers = mesh_->world().observers();
  observers.step_begins(steps_done_ + 1);
  std::vector<Batch> microbatches;
  {
    const PhaseTimer timer(report.seconds, Phase::data);
    observers.work_begins(Phase::data, nullptr);
    microbatches = loader_.next_step();
    observers.block_done(0, {});
  }
  {
    const PhaseTimer timer(report.seconds, Phase::data_comm);
    report.counts = counts_of(microbatches, loader_.valid_tokens());
  }
  {
    const PhaseTimer timer(report.seconds, Phase::optimizer);
    begin_gradients();
    Kokkos::deep_copy(exec_, element(loss()), 0.0);
  }
  bytes_before_ = bytes_so_far();  // after begin_gradients(), where the count of the gradients begins at 0
  // The loss is a sum over tokens divided by the global number of valid ones: no layout can change the mean.
  const double weight = token_weight(report.counts.valid_tokens);
  report.loss_scale = loss_scaler_.scale();
  transit_ = {};
  times().begin_step();
  std::vector<TokenBatch> staged = transfers_.stage(exec_, microbatches, {weight, report.loss_scale * weight});
  if (batch_decorator_)
    batch_decorator_(staged);
  forward_backward(staged, report.seconds);
  report.transit = transit_;
  double bubble_seconds = 0;  // it waited before the other stage had sent
  {
    const PhaseTimer timer(report.seconds, Phase::data_comm);
    bubble_seconds = finish_reduction();
  }
  report.seconds[Phase::data_comm] -= bubble_seconds;
  report.seconds[Phase::bubble] += bubble_seconds;
  times().enqueue(Phase::optimizer, [&] { square_gradients(); });
  report.step = steps_done_ + 1;
  report.learning_rate = learning_rate_.at(steps_done_);
  report.samples = {loader_.position() - config_.layout.global_batch, loader_.position()};
  return report;
}

void Trainer::read_results(StepReport& report, const std::function<bool()>& stop_requested) {
  const std::span<const double> own = transfers_.read(exec_, {element(loss()), gradient_squares()});
  times().wait_and_account(report.seconds);
  // Who is done waits here for the slowest stage: in a pipeline that is bubble.
  const PhaseTimer timer(report.seconds, mesh_->pp().size() > 1 ? Phase::bubble : Phase::data_comm);
  const bool has_loss = mesh_->pp().rank() == mesh_->pp().size() - 1 && mesh_->tp().rank() == 0;
  std::array<double, 3> shared = {has_loss ? own[0] : 0.0, stop_requested && stop_requested() ? 1.0 : 0.0, own[1]};
  all_reduce(mesh_->world(), std::span<double>(shared));
  require_links_alive(mesh_->world());  // else the sums may be of messages that never came
  report.loss = unsigned_if_nan(shared[0]);
  report.stop = shared[1] > 0;
  report.gradient_norm = unsigned_if_nan(std::sqrt(shared[2]) / report.loss_scale);
  report.bytes_sent = bytes_of_step();
  mesh_->pp().pause_device_edges(false);  // every kernel has run once, see ProcessMesh
}

void Trainer::give_up(const StepReport& report) const {
  const bool skips = config_.stability.on_spike == SpikePolicy::skip;
  throw Error(ExitCode::numerical,
              {.what = skips ? fmt::format("the training diverged: more than {} steps in a row would be skipped",
                                           config_.stability.max_skips)
                             : "the training diverged",
               .where = fmt::format("step {}, global samples {} to {}", report.step, report.samples.begin,
                                    report.samples.end - 1),
               .got = fmt::format("loss {}, gradient norm {}", report.loss, report.gradient_norm),
               .wanted = skips ? "numbers like those of the steps before" : "finite numbers",
               .todo = fmt::format("{}; the weights were not changed by this step", todo_when_diverged)});
}

void Trainer::skip_overflow(const StepReport& report) {
  if (loss_scaler_.skipped_step())
    return;
  throw Error(ExitCode::numerical,
              {.what = fmt::format("the gradients overflow at the smallest loss scale, {} steps in a row",
                                   LossScaler::patience),
               .where = fmt::format("step {}, loss scale {}", report.step, report.loss_scale),
               .got = fmt::format("loss {}, gradient norm {}", report.loss, report.gradient_norm),
               .wanted = "finite numbers",
               .todo = "use precision.compute=bf16 or fp32, or lower optimizer.learning_rate; the weights were not "
                       "changed by these steps"});
}

void Trainer::judge(StepReport& report) {
  // A loss that is not finite has overflowed forward, without the scale: no other scale would help.
  const bool overflow = loss_scaler_.is_active() && std::isfinite(report.loss) && !std::isfinite(report.gradient_norm);
  const bool is_empty = report.counts.valid_tokens == 0;
  if (overflow)
    skip_overflow(report);
  else if (is_empty)
    spike_guard_.skip_empty();
  else
    report.judgement = spike_guard_.judge(report.loss, report.gradient_norm);
  if (report.judgement.anomaly != Anomaly::none && anomaly_observer_) {
    const PhaseTimer timer(report.seconds, Phase::checkpoint);  // what it keeps is no part of the step
    anomaly_observer_(report);
  }
  const StepAction action = report.judgement.action;
  if (action == StepAction::give_up)
    give_up(report);
  report.rollback = action == StepAction::rollback;
  report.skipped = overflow || is_empty || action == StepAction::skip;
}

// `is_enqueued`: the update, with the guard's limits, which have held back an anomaly.
void Trainer::judge_and_update(StepReport& report, bool is_enqueued) {
  judge(report);
  if (report.rollback)
    return;
  if (!report.skipped) {
    if (!is_enqueued || report.judgement.anomaly != Anomaly::none) {
      const double scaled_norm = report.loss_scale * report.gradient_norm;
      Kokkos::deep_copy(exec_, gradient_squares(), scaled_norm * scaled_norm);  // of all ranks
      enqueue_update(report, std::nullopt);
      times().wait_and_account(report.seconds);
    }
    {
      const PhaseTimer timer(report.seconds, Phase::data_comm);
      gather_updated_weights();
    }
    loss_scaler_.good_step();
  }
  report.skipped_steps = loss_scaler_.skipped() + spike_guard_.skipped();
  report.bytes_sent = bytes_of_step();
  report.step = ++steps_done_;
  report.tokens = tokens();
  report.passed_over = loader_.num_passed_over();
  if (std::isfinite(report.loss) && report.counts.valid_tokens > 0)  // a checkpoint keeps numbers only
    last_loss_ = report.loss;
}

void Trainer::enqueue_update(const StepReport& report, const std::optional<UpdateLimits>& limits) {
  const Index updates =
      steps_done_ - loss_scaler_.skipped() - spike_guard_.skipped() + 1;  // what Adam's moments have seen
  StepObservers& observers = mesh_->world().observers();
  times().enqueue(Phase::optimizer, [&] {
    observers.work_begins(Phase::optimizer, nullptr);
    clip_factor(exec_, gradient_norm_, clip_, gradient_squares(), config_.optimizer.clip_grad_norm, report.loss_scale);
    if (limits)
      hold_update(exec_, clip_, loss(), gradient_norm_, *limits);
    update_weights(report.learning_rate, clip_, updates);
    observers.block_done(0, {});
  });
}

Index Trainer::tokens() const { return (loader_.position() - loader_.num_passed_over()) * config_.sequence_length; }

TokenCounts Trainer::counts_of(const std::vector<Batch>& batches, Index max_tokens) const {
  return loader_.all_targets_count() ? TokenCounts{.valid_tokens = max_tokens}
                                     : count_tokens(batches, config_.model.shape, mesh_->dp());
}

void Trainer::restore(Index steps_done, Index data_position, double last_loss) {
  steps_done_ = steps_done;
  last_loss_ = last_loss;
  loader_.seek(data_position);
}

}  // namespace espalier
