// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/trainer.hpp"

#include <fmt/format.h>

#include <cmath>

#include "core/kokkos_compat.hpp"
#include "parallel/collectives.hpp"

namespace espalier {
namespace {

LoaderOptions loader_options(const RunConfig& config, const ProcessMesh& mesh) {
  LoaderOptions options;
  options.micro_batch_size = config.batch.micro_batch_size;
  options.sequence_length = config.batch.sequence_length;
  options.global_batch_size = config.batch.global_batch_size;
  options.rank = mesh.dp().rank();
  options.size = mesh.dp().size();
  options.seed = static_cast<std::uint64_t>(config.run.seed);
  options.vocab_size = config.model.shape.vocab_size;
  return options;
}

// All files must come from one tokenizer, as far as they say from which. The first that says sets it.
std::vector<TokenFile> open_files(const std::vector<std::string>& paths, Index vocab_size, std::string& tokenizer) {
  std::vector<TokenFile> files;
  for (const std::string& path : paths) {
    const TokenFile& file = files.emplace_back(path);
    file.check_vocabulary(vocab_size);
    const std::string& name = file.info().tokenizer;
    if (!tokenizer.empty() && !name.empty() && name != tokenizer)
      throw Error(ExitCode::data, {.what = "token files of different tokenizers cannot be mixed",
                                   .where = path,
                                   .got = name,
                                   .wanted = tokenizer,
                                   .todo = "pack all texts with one tokenizer"});
    if (tokenizer.empty())
      tokenizer = name;
  }
  return files;
}

// Allocates before anything is built on it: a member initialiser that comes first.
template <class T>
const ParameterStore<T>& allocated(ParameterStore<T>& parameters) {
  parameters.allocate();
  return parameters;
}

template <class T>
std::vector<SquaredNorm::Range> parameter_ranges(const ParameterStore<T>& parameters) {
  std::vector<SquaredNorm::Range> ranges;
  for (const Parameter& parameter : parameters.parameters())
    ranges.push_back({parameter.offset, parameter.size});
  return ranges;
}

double to_host(const ExecSpace& exec, const Tensor<double, 0>& value) {
  double result = 0;
  Kokkos::deep_copy(exec, Kokkos::View<double, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(&result), value);
  compat::fence(exec, "espalier::Trainer: a scalar is read on the host");
  return result;
}

}  // namespace

template <class T>
Trainer<T>::Trainer(const ExecSpace& exec, const RunConfig& config, const ProcessMesh& mesh)
    : exec_(exec),
      config_(config),
      mesh_(&mesh),
      learning_rate_(config.learning_rate()),
      model_(parameters_, config.model.shape),
      loader_(open_files(config.data.train, config.model.shape.vocab_size, tokenizer_), loader_options(config, mesh)),
      schedule_(single_stage_schedule(static_cast<int>(loader_.num_microbatches()))),
      optimizer_(allocated(parameters_), config.optimizer.adamw),
      reducer_(exec, mesh.reductions(), parameters_.flat_gradients(), parameters_.segments(), parameters_.parameters()),
      squared_norm_(parameter_ranges(parameters_)),
      gradient_norm_(ledger_label(Category::workspace, "gradient_norm")),
      clip_(ledger_label(Category::workspace, "clip")) {
  if (!config.data.validation.empty())
    validation_.emplace(open_files(config.data.validation, config.model.shape.vocab_size, tokenizer_),
                        loader_options(config, mesh), config.run.eval_samples);
  model_.plan_activations(config.batch.micro_batch_size, config.batch.sequence_length, slots_needed(schedule_));
  parameters_.initialize(exec_, static_cast<std::uint64_t>(config.run.seed));
}

template <class T>
StepReport Trainer<T>::step(bool stop_requested) {
  const auto start = std::chrono::steady_clock::now();
  StepReport report;
  std::vector<Batch> microbatches;
  {
    const PhaseTimer timer(report.seconds, Phase::data);
    microbatches = loader_.next_step();
  }
  {
    const PhaseTimer timer(report.seconds, Phase::optimizer);
    parameters_.zero_gradients(exec_);
    Kokkos::deep_copy(exec_, model_.loss(), 0.0);
  }
  reducer_.begin_step();
  // The loss is a sum over tokens divided by the global number of valid ones: no layout can change the mean.
  forward_backward(exec_, model_, microbatches, schedule_, reducer_, 1.0 / static_cast<double>(loader_.valid_tokens()),
                   report.seconds);
  {
    const PhaseTimer timer(report.seconds, Phase::data_comm);
    reducer_.wait();
    std::array<double, 2> shared = {to_host(exec_, model_.loss()), stop_requested ? 1.0 : 0.0};
    all_reduce(mesh_->dp(), std::span<double>(shared));
    report.loss = shared[0];
    report.stop = shared[1] > 0;
  }
  {
    const PhaseTimer timer(report.seconds, Phase::optimizer);
    squared_norm_.compute<State<T>>(exec_, parameters_.flat_gradients());
    clip_factor(exec_, gradient_norm_, clip_, squared_norm_.sums(), config_.optimizer.clip_grad_norm);
    report.gradient_norm = to_host(exec_, gradient_norm_);
    if (!std::isfinite(report.loss) || !std::isfinite(report.gradient_norm))
      throw Error(ExitCode::numerical,
                  {.what = "the training diverged",
                   .where = fmt::format("step {}, global samples {} to {}", steps_done_ + 1,
                                        loader_.position() - config_.batch.global_batch_size, loader_.position() - 1),
                   .got = fmt::format("loss {}, gradient norm {}", report.loss, report.gradient_norm),
                   .wanted = "finite numbers",
                   .todo = "lower optimizer.learning_rate, lengthen optimizer.warmup_steps, or resume from an older "
                           "checkpoint; the weights were not changed by this step"});
    report.learning_rate = learning_rate_.at(steps_done_);
    optimizer_.step(exec_, report.learning_rate, clip_, steps_done_ + 1);
    compat::fence(exec_, "espalier::Trainer::step: the phase's time is its own");
  }
  report.step = ++steps_done_;
  report.tokens = loader_.position() * config_.batch.sequence_length;
  last_loss_ = report.loss;
  report.step_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  report.seconds[Phase::other] = report.step_seconds - report.seconds.total();
  return report;
}

template <class T>
double Trainer<T>::evaluate() {
  ESPALIER_ASSERT(validation_, "espalier::Trainer::evaluate: the config names no validation files");
  Kokkos::deep_copy(exec_, model_.loss(), 0.0);
  const double scale = 1.0 / static_cast<double>(validation_->valid_tokens());
  for (Index i = 0; i < validation_->num_batches(); ++i) {
    const Batch batch = validation_->batch(i);
    model_.evaluate(exec_, 0, {batch.inputs.data(), batch.targets.data()}, scale);
  }
  return all_reduce(mesh_->dp(), to_host(exec_, model_.loss()));
}

template <class T>
void Trainer<T>::restore(Index steps_done, Index data_position, double last_loss) {
  steps_done_ = steps_done;
  last_loss_ = last_loss;
  loader_.seek(data_position);
}

template <class T>
MemoryByCategory predict_memory(const RunConfig& config, int replicas) {
  ParameterStore<T> parameters;
  const Gpt<T> model(parameters, config.model.shape);
  parameters.lay_out();
  const auto flat = static_cast<std::size_t>(parameters.flat_size());
  const auto activations = model.measure_activations(config.batch.micro_batch_size, config.batch.sequence_length, 1);
  MemoryByCategory memory;
  const auto set = [&](Category category, std::size_t bytes) {
    memory.bytes[static_cast<std::size_t>(category)] = bytes;
  };
  set(Category::weights, flat * sizeof(T));
  set(Category::gradients, flat * sizeof(State<T>));
  set(Category::optimizer, flat * (2 + (std::is_same_v<T, State<T>> ? 0 : 1)) * sizeof(State<T>));
  set(Category::activations, static_cast<std::size_t>(activations.slots));
  set(Category::workspace, static_cast<std::size_t>(activations.workspace));
  if (replicas > 1) {
    const ReducerOptions options;
    set(Category::communication, static_cast<std::size_t>(options.buckets_in_flight * options.bucket_bytes));
  }
  return memory;
}

template class Trainer<float>;
template class Trainer<double>;
template MemoryByCategory predict_memory<float>(const RunConfig&, int);
template MemoryByCategory predict_memory<double>(const RunConfig&, int);

}  // namespace espalier
