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
#include "parallel/reduction/counted_ranges.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/step/loaders.hpp"

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
  parameters.allocate(plan.weights(layout.zero_stage, buffers.weights), plan.gradients(buffers.gradients));
  return GradientReducer<State<T>>(exec, mesh.reductions(), parameters.gradients(), parameters.segments(),
                                   parameters.parameters(), options);
}

// The sign of a NaN means nothing, and depends on the order of operands; people would read it.
double unsigned_if_nan(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

// Where the ranges lie in the held gradients.
template <class S>
std::vector<SquaredNorm::Range> norm_ranges(const FlatStorage<S>& gradients, const std::vector<IndexRange>& ranges) {
  std::vector<SquaredNorm::Range> result;
  for (const IndexRange& range : ranges)
    result.push_back({gradients.place(range.begin), range.size()});
  return result;
}

std::vector<PipelineSchedule> proven_schedules(const RunConfig& config, const Layout& layout) {
  std::vector<PipelineSchedule> schedules = make_schedules(config, layout);
  require_proven(config, layout, schedules);
  return schedules;
}

}  // namespace

template <class P>
Trainer<P>::Trainer(const ExecSpace& exec, const RunConfig& config, const Layout& layout, const ProcessMesh& mesh)
    : exec_(exec),
      config_(config),
      mesh_(&mesh),
      learning_rate_(config.learning_rate()),
      model_(parameters_, config.model.shape, layout.chunks().at(static_cast<std::size_t>(mesh.pp().rank())),
             TensorParallel<Compute<P>>(mesh.tp(), layout.sequence_parallel)),
      loader_(open_training_loader(config, mesh, tokenizer_)),
      schedule_(proven_schedules(config, layout).at(static_cast<std::size_t>(mesh.pp().rank()))),
      units_(unit_list(layout, mesh.pp().rank(), schedule_)),
      reducer_(make_reducer(exec, mesh, parameters_, config, layout)),
      gatherer_(exec, mesh.reductions(), parameters_.weights(), reducer_.plan()),
      optimizer_(parameters_, config.optimizer.adamw, reducer_.owned()),
      counted_weights_(layout.zero_stage == 3 ? counted_ranges(parameters_.parameters(), reducer_.owned(),
                                                               mesh.layout(), mesh.world().rank(), true)
                                              : counted_ranges(parameters_.parameters(), {{0, parameters_.flat_size()}},
                                                               mesh.layout(), mesh.world().rank(), false)),
      counted_owned_(counted_ranges(parameters_.parameters(), reducer_.owned(), mesh.layout(), mesh.world().rank(),
                                    layout.zero_stage > 0)),
      squared_norm_(exec, norm_ranges(parameters_.gradients(), counted_owned_)),
      gradient_norm_(ledger_label(Category::workspace, "gradient_norm")),
      clip_(ledger_label(Category::workspace, "clip")),
      times_(exec_, mesh.world(), model_.tensor()),
      spike_guard_(config.stability) {
  constexpr bool has_own_residual = !std::is_same_v<Residual<P>, Compute<P>>;
  ESPALIER_ASSERT(has_own_residual == (has_masters<Compute<P>> && config.precision.residual == "state"),
                  "the trainer's residual stream is of another type than the config's");
  validation_ = open_validation_loader(config, mesh, tokenizer_);
  model_.use_graphs(config.run.cuda_graphs);
  model_.overwrite_layer_gradients(!reducer_.plan().units.empty());
  model_.set_dropout_seed(static_cast<std::uint64_t>(config.run.seed));
  model_.plan_activations(config.layout.micro_batch, config.sequence_length,
                          activation_memory(schedule_, layout.chunks().at(static_cast<std::size_t>(mesh.pp().rank())),
                                            config.data.separates_documents()));
  mesh.tp().scratch<unsigned char>(tensor_scratch_bytes(config.model.shape, layout, layout.has_head(mesh.pp().rank()),
                                                        memory_options<P>(config, layout)));
  parameters_.initialize(exec_, static_cast<std::uint64_t>(config.run.seed));
  optimizer_.initialize_masters(exec_, static_cast<std::uint64_t>(config.run.seed));
  if constexpr (std::is_same_v<Compute<P>, float16>)
    loss_scaler_ = LossScaler(config.precision.loss_scale);
}

template <class P>
std::array<std::uint64_t, num_axes> Trainer<P>::bytes_so_far() const {
  std::array<std::uint64_t, num_axes> bytes{};
  bytes[static_cast<std::size_t>(Axis::tp)] = mesh_->tp().traffic().bytes;
  bytes[static_cast<std::size_t>(Axis::pp)] = mesh_->pp().traffic().bytes;
  bytes[static_cast<std::size_t>(Axis::dp)] = reducer_.stats().bytes_sent + gatherer_.bytes_sent();
  return bytes;
}

template <class P>
StepReport Trainer<P>::step(const std::function<bool()>& stop_requested) {
  const Stopwatch stopwatch;
  StepReport report;
  or_abandon_links(mesh_->world(), [&] {
    report = queue_gradients();
    const bool is_queued = mesh_->world().size() == 1 && report.counts.valid_tokens > 0;
    if (is_queued)
      queue_update(report, spike_guard_.limits());
    take_results(report, stop_requested);
    finish(report, is_queued);
  });
  const double whole = stopwatch.seconds();
  report.seconds[Phase::other] = whole - report.seconds.total();
  report.step_seconds = whole - report.seconds[Phase::checkpoint];
  return report;
}

template <class P>
StepReport Trainer<P>::compute_gradients(const std::function<bool()>& stop_requested) {
  StepReport report = queue_gradients();
  take_results(report, stop_requested);
  return report;
}

template <class P>
void Trainer<P>::update(StepReport& report) {
  finish(report, false);
}

template <class P>
StepReport Trainer<P>::queue_gradients() {
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
    model_.begin_gradients(exec_);
    Kokkos::deep_copy(exec_, element(model_.loss()), 0.0);
  }
  reducer_.begin_step();
  report.bytes_sent = bytes_so_far();
  // The loss is a sum over tokens divided by the global number of valid ones: no layout can change the mean.
  const double weight = token_weight(report.counts.valid_tokens);
  report.loss_scale = loss_scaler_.scale();
  transit_ = {};
  times_.begin_step();
  std::vector<TokenBatch> staged = transfers_.stage(exec_, microbatches, {weight, report.loss_scale * weight});
  if (batch_decorator_)
    batch_decorator_(staged);
  forward_backward(context(), staged, schedule_, report.seconds);
  report.transit = transit_;
  {
    const PhaseTimer timer(report.seconds, Phase::data_comm);
    reducer_.wait();
  }
  report.seconds[Phase::data_comm] -= reducer_.stats().early_seconds;  // the other stage was still at work
  report.seconds[Phase::bubble] += reducer_.stats().early_seconds;
  times_.queue(Phase::optimizer,
               [&] { squared_norm_.compute<State<Compute<P>>>(exec_, parameters_.flat_gradients()); });
  report.step = steps_done_ + 1;
  report.learning_rate = learning_rate_.at(steps_done_);
  report.samples = {loader_.position() - config_.layout.global_batch, loader_.position()};
  return report;
}

template <class P>
void Trainer<P>::take_results(StepReport& report, const std::function<bool()>& stop_requested) {
  const std::span<const double> own = transfers_.read(exec_, {element(model_.loss()), squared_norm_.total()});
  times_.account(report.seconds);
  // Who is done waits here for the last stage to be done: in a pipeline that is bubble.
  const PhaseTimer timer(report.seconds, mesh_->pp().size() > 1 ? Phase::bubble : Phase::data_comm);
  const bool has_loss = mesh_->pp().rank() == mesh_->pp().size() - 1 && mesh_->tp().rank() == 0;
  std::array<double, 3> shared = {has_loss ? own[0] : 0.0, stop_requested && stop_requested() ? 1.0 : 0.0, own[1]};
  all_reduce(mesh_->world(), std::span<double>(shared));
  require_links_alive(mesh_->world());  // else the sums may be of messages that never came
  report.loss = unsigned_if_nan(shared[0]);
  report.stop = shared[1] > 0;
  report.gradient_norm = unsigned_if_nan(std::sqrt(shared[2]) / report.loss_scale);
  mesh_->pp().rest_device_edges(false);  // all kernels have been at work
}

template <class P>
void Trainer<P>::give_up(const StepReport& report) const {
  const bool skips = config_.stability.on_spike == "skip";
  throw Error(ExitCode::numerical,
              {.what = skips ? fmt::format("the training diverged: more than {} steps in a row were to be skipped",
                                           config_.stability.max_skips)
                             : "the training diverged",
               .where = fmt::format("step {}, global samples {} to {}", report.step, report.samples.begin,
                                    report.samples.end - 1),
               .got = fmt::format("loss {}, gradient norm {}", report.loss, report.gradient_norm),
               .wanted = skips ? "numbers like those of the steps before" : "finite numbers",
               .todo = "lower optimizer.learning_rate or lengthen optimizer.warmup_steps; the weights were not changed "
                       "by this step"});
}

template <class P>
void Trainer<P>::skip_overflow(const StepReport& report) {
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

template <class P>
void Trainer<P>::judge(StepReport& report) {
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
  const StepFate fate = report.judgement.fate;
  if (fate == StepFate::give_up)
    give_up(report);
  report.rollback = fate == StepFate::rollback;
  report.skipped = overflow || is_empty || fate == StepFate::skip;
}

// `is_queued`: the update, with the guard's limits, which have held back an anomaly.
template <class P>
void Trainer<P>::finish(StepReport& report, bool is_queued) {
  judge(report);
  if (report.rollback)
    return;
  if (!report.skipped) {
    if (!is_queued || report.judgement.anomaly != Anomaly::none) {
      const double scaled_norm = report.loss_scale * report.gradient_norm;
      Kokkos::deep_copy(exec_, squared_norm_.total(), scaled_norm * scaled_norm);  // of all ranks
      queue_update(report, std::nullopt);
      times_.account(report.seconds);
    }
    {
      const PhaseTimer timer(report.seconds, Phase::data_comm);
      reducer_.gather_updated_weights(parameters_.weights());
    }
    loss_scaler_.good_step();
  }
  report.skipped_steps = loss_scaler_.skipped() + spike_guard_.skipped();
  const std::array<std::uint64_t, num_axes> before = report.bytes_sent;
  report.bytes_sent = bytes_so_far();
  for (std::size_t axis = 0; axis < num_axes; ++axis)
    report.bytes_sent[axis] -= before[axis];
  report.step = ++steps_done_;
  report.tokens = tokens();
  report.passed_over = loader_.num_passed_over();
  if (std::isfinite(report.loss) && report.counts.valid_tokens > 0)  // a checkpoint keeps numbers only
    last_loss_ = report.loss;
}

template <class P>
void Trainer<P>::queue_update(const StepReport& report, const std::optional<UpdateLimits>& limits) {
  const Index updates =
      steps_done_ - loss_scaler_.skipped() - spike_guard_.skipped() + 1;  // what Adam's moments have seen
  StepObservers& observers = mesh_->world().observers();
  times_.queue(Phase::optimizer, [&] {
    observers.work_begins(Phase::optimizer, nullptr);
    clip_factor(exec_, gradient_norm_, clip_, squared_norm_.total(), config_.optimizer.clip_grad_norm,
                report.loss_scale);
    if (limits)
      hold_update(exec_, clip_, model_.loss(), gradient_norm_, *limits);
    optimizer_.step(exec_, report.learning_rate, clip_, updates);
    observers.block_done(0, {});
  });
}

template <class P>
Index Trainer<P>::tokens() const {
  return (loader_.position() - loader_.num_passed_over()) * config_.sequence_length;
}

template <class P>
TokenCounts Trainer<P>::counts_of(const std::vector<Batch>& batches, Index most_tokens) const {
  return loader_.all_targets_count() ? TokenCounts{.valid_tokens = most_tokens}
                                     : count_tokens(batches, config_.model.shape, mesh_->dp());
}

template <class P>
void Trainer<P>::restore(Index steps_done, Index data_position, double last_loss) {
  steps_done_ = steps_done;
  last_loss_ = last_loss;
  loader_.seek(data_position);
}

#define ESPALIER_INSTANTIATE(P) template class Trainer<P>;
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
