// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/trainer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/kokkos_compat.hpp"
#include "core/stopwatch.hpp"
#include "parallel/collectives.hpp"
#include "parallel/failure.hpp"
#include "training/counted_ranges.hpp"
#include "training/loaders.hpp"
#include "training/predict_memory.hpp"

namespace espalier {
namespace {

// Allocates weights and gradients first: the reducer is built on them.
template <class T>
GradientReducer<State<T>> make_reducer(const ExecSpace& exec, const ProcessMesh& mesh, ParameterStore<T>& parameters,
                                       const Layout& layout, const ReducerOptions& options) {
  parameters.lay_out();
  const ReductionPlan plan = plan_reduction(parameters.segments(), parameters.parameters(), mesh.reductions().ranks(),
                                            options, static_cast<Index>(sizeof(State<T>)));
  parameters.allocate(plan.weights(layout.zero_stage, weight_buffers(layout, plan.units.size())),
                      plan.gradients(gradient_buffers));
  return GradientReducer<State<T>>(exec, mesh.reductions(), parameters.gradients(), parameters.segments(),
                                   parameters.parameters(), options);
}

// 0 without tokens: no gradient and no loss, rather than a NaN.
double token_weight(Index valid_tokens) { return valid_tokens == 0 ? 0 : 1.0 / static_cast<double>(valid_tokens); }

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

// As memory of one element, which is filled and copied without the host: a scalar of Kokkos' is not.
Tensor<double, 1> element(const Tensor<double, 0>& scalar) { return Tensor<double, 1>(scalar.data(), 1); }

std::vector<PipelineSchedule> proven_schedules(const RunConfig& config, const Layout& layout) {
  std::vector<PipelineSchedule> schedules = make_schedules(config, layout);
  require_proven(layout, schedules);
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
      reducer_(make_reducer(exec, mesh, parameters_, layout, reducer_options(config, layout, mesh.pp().rank()))),
      gatherer_(exec, mesh.reductions(), parameters_.weights(), reducer_.plan()),
      optimizer_(parameters_, config.optimizer.adamw, reducer_.owned()),
      counted_weights_(layout.zero_stage == 3 ? counted_ranges(parameters_.parameters(), reducer_.owned(),
                                                               mesh.layout(), mesh.world().rank(), true)
                                              : counted_ranges(parameters_.parameters(), {{0, parameters_.flat_size()}},
                                                               mesh.layout(), mesh.world().rank(), false)),
      counted_owned_(counted_ranges(parameters_.parameters(), reducer_.owned(), mesh.layout(), mesh.world().rank(),
                                    layout.zero_stage > 0)),
      squared_norm_(exec, norm_ranges(parameters_.gradients(), counted_owned_)),
      global_sum_(ledger_label(Category::workspace, "squared_norm"), 1),
      gradient_norm_(ledger_label(Category::workspace, "gradient_norm")),
      clip_(ledger_label(Category::workspace, "clip")),
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
  mesh.tp().scratch<unsigned char>(tensor_scratch<Compute<P>>(config, layout, mesh.pp().rank()));
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
    report = compute_gradients(stop_requested);
    update(report);
  });
  const double whole = stopwatch.seconds();
  report.seconds[Phase::other] = whole - report.seconds.total();
  report.step_seconds = whole - report.seconds[Phase::checkpoint];
  return report;
}

template <class P>
StepReport Trainer<P>::compute_gradients(const std::function<bool()>& stop_requested) {
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
  double squares = 0;
  {
    const PhaseTimer timer(report.seconds, Phase::optimizer);
    squared_norm_.compute<State<Compute<P>>>(exec_, parameters_.flat_gradients());
    const std::span<const double> sums = transfers_.read(exec_, squared_norm_.sums());
    squares = std::accumulate(sums.begin(), sums.end(), 0.0);  // in the order of the ranges, that is of the parameters
  }
  {
    // Who is done waits here for the last stage to be done: in a pipeline that is bubble.
    const PhaseTimer timer(report.seconds, mesh_->pp().size() > 1 ? Phase::bubble : Phase::data_comm);
    const bool has_loss = mesh_->pp().rank() == mesh_->pp().size() - 1 && mesh_->tp().rank() == 0;
    std::array<double, 3> shared = {has_loss ? transfers_.read(exec_, element(model_.loss())).front() : 0.0,
                                    stop_requested && stop_requested() ? 1.0 : 0.0, squares};
    all_reduce(mesh_->world(), std::span<double>(shared));
    require_links_alive(mesh_->world());  // else the sums may be of messages that never came
    report.loss = unsigned_if_nan(shared[0]);
    report.stop = shared[1] > 0;
    report.gradient_norm = unsigned_if_nan(std::sqrt(shared[2]) / report.loss_scale);
  }
  mesh_->pp().rest_device_edges(false);  // all kernels have been at work
  report.step = steps_done_ + 1;
  report.samples = {loader_.position() - config_.layout.global_batch, loader_.position()};
  return report;
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
void Trainer<P>::update(StepReport& report) {
  // A loss that is not finite has overflowed forward, without the scale: no other scale would help.
  const bool overflow = loss_scaler_.is_active() && std::isfinite(report.loss) && !std::isfinite(report.gradient_norm);
  const bool is_empty = report.counts.valid_tokens == 0;
  report.learning_rate = learning_rate_.at(steps_done_);
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
  if (report.rollback)
    return;
  report.skipped = overflow || is_empty || fate == StepFate::skip;
  if (!report.skipped)
    apply(report);
  report.skipped_steps = loss_scaler_.skipped() + spike_guard_.skipped();
  const std::array<std::uint64_t, num_axes> before = report.bytes_sent;
  report.bytes_sent = bytes_so_far();
  for (std::size_t axis = 0; axis < num_axes; ++axis)
    report.bytes_sent[axis] -= before[axis];
  report.step = ++steps_done_;
  report.tokens = tokens();
  report.passed_over = loader_.num_passed_over();
  if (std::isfinite(report.loss) && !is_empty)  // a skipped one need not be, and a checkpoint keeps numbers only
    last_loss_ = report.loss;
}

template <class P>
void Trainer<P>::apply(StepReport& report) {
  const Index updates =
      steps_done_ - loss_scaler_.skipped() - spike_guard_.skipped() + 1;  // what Adam's moments have seen
  {
    const PhaseTimer timer(report.seconds, Phase::optimizer);
    mesh_->world().observers().work_begins(Phase::optimizer, nullptr);
    const double scaled_norm = report.loss_scale * report.gradient_norm;
    Kokkos::deep_copy(exec_, global_sum_, scaled_norm * scaled_norm);
    clip_factor(exec_, gradient_norm_, clip_, global_sum_, config_.optimizer.clip_grad_norm, report.loss_scale);
    optimizer_.step(exec_, report.learning_rate, clip_, updates);
    compat::fence(exec_, "espalier::Trainer::update: the phase's time is its own");
    mesh_->world().observers().block_done(0, {});
  }
  {
    const PhaseTimer timer(report.seconds, Phase::data_comm);
    reducer_.start_gather(parameters_.weights());
    reducer_.wait_gather();
  }
  loss_scaler_.good_step();
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
void Trainer<P>::forward(const std::vector<Batch>& batches, double weight) {
  PhaseSeconds seconds;
  forward_only(context(), transfers_.stage(exec_, batches, weight), seconds);
}

template <class P>
double Trainer<P>::mean_loss(const std::function<bool()>& forward_all) {
  Kokkos::deep_copy(exec_, element(model_.loss()), 0.0);
  double mean = 0;
  const Evaluation no_step(mesh_->world().observers());
  or_abandon_links(mesh_->world(), [&] {
    if (!forward_all())
      return;
    const bool has_loss = mesh_->pp().rank() == mesh_->pp().size() - 1 && mesh_->tp().rank() == 0;
    mean = all_reduce(mesh_->world(), has_loss ? transfers_.read(exec_, element(model_.loss())).front() : 0.0);
  });
  return mean;
}

template <class P>
double Trainer<P>::mean_loss(const std::vector<Batch>& batches, Index most_tokens) {
  return mean_loss([&] {
    forward(batches, token_weight(counts_of(batches, most_tokens).valid_tokens));
    return true;
  });
}

template <class P>
std::optional<double> Trainer<P>::evaluate(const std::function<bool(Index, Index)>& must_stop) {
  ESPALIER_ASSERT(validation_, "the config names no validation files");
  // Tokens wait in memory that no prediction counts: not all at once, and enough to keep the stages busy.
  constexpr double seconds_at_a_time = 0.5;
  const Index stages = mesh_->pp().size();
  const Index most = 16 * stages;
  const Index total = validation_->num_batches();
  const Index most_tokens = validation_->valid_tokens();
  Index valid_tokens = validation_->all_targets_count() ? most_tokens : 0;
  Index at_a_time = stages;
  Index done = 0;
  const double loss = mean_loss([&] {
    while (done < total) {
      if (must_stop && must_stop(done, total))
        return false;
      const Stopwatch stopwatch;
      std::vector<Batch> batches;
      for (const Index end = std::min(done + at_a_time, total); done < end; ++done)
        batches.push_back(validation_->batch(done));
      forward(batches, token_weight(most_tokens));
      if (!validation_->all_targets_count())
        valid_tokens += count_tokens(batches, config_.model.shape, mesh_->dp()).valid_tokens;
      compat::fence(exec_, "espalier::Trainer::evaluate: a stop is asked for between batches");
      const double seconds = all_reduce(mesh_->world(), stopwatch.seconds(), ReduceOp::max);  // one size on all ranks
      const double wanted = static_cast<double>(std::ssize(batches)) * seconds_at_a_time / std::max(seconds, 1e-9);
      at_a_time = std::clamp(static_cast<Index>(std::min(wanted, 1e9)), stages, most);
    }
    return true;
  });
  if (done < total)
    return std::nullopt;
  require_valid(valid_tokens);
  return loss / (static_cast<double>(valid_tokens) / static_cast<double>(most_tokens));
}

template <class P>
double Trainer<P>::next_loss(Index num_samples) {
  return mean_loss(loader_.preview(num_samples), num_samples * config_.sequence_length);
}

template <class P>
double Trainer<P>::past_loss(Index num_samples) {
  const Index position = loader_.position();
  loader_.seek(position - config_.layout.global_batch);
  const std::vector<Batch> batches = loader_.preview(num_samples);
  loader_.seek(position);
  return mean_loss(batches, num_samples * config_.sequence_length);
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
