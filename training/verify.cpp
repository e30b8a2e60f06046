// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/verify.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "parallel/collectives.hpp"
#include "parallel/texts.hpp"
#include "training/check_token_files.hpp"
#include "training/layouts_to_verify.hpp"
#include "training/logical_tensors.hpp"
#include "training/trainer.hpp"

namespace espalier {
namespace {

constexpr double smallest_share = 1e-3;  // of the global norm: below it a tensor's own norm is no measure

template <class View>
std::vector<double> to_host(const View& view) {
  const ExecSpace exec;
  const auto host = Kokkos::create_mirror_view(view);
  Kokkos::deep_copy(exec, host, view);
  compat::fence(exec, "espalier::verify: the values are read on the host");
  std::vector<double> values(host.extent(0));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(host(i));
  return values;
}

template <class View>
void to_device(const std::vector<double>& values, const View& view) {
  using Value = typename View::non_const_value_type;
  const auto host = Kokkos::create_mirror_view(view);
  for (std::size_t i = 0; i < values.size(); ++i)
    host(i) = static_cast<Value>(static_cast<State<Value>>(values[i]));
  const ExecSpace exec;
  Kokkos::deep_copy(exec, view, host);
  compat::fence(exec, "espalier::verify: any instance may read the values, and the host copy goes away");
}

// Moments as if they lay like the weights: zero where this rank keeps none.
template <class T>
std::vector<double> spread_moments(const Trainer<T>& trainer, const Tensor<State<T>, 1>& moments) {
  const std::vector<double> packed = to_host(moments);
  std::vector<double> flat(static_cast<std::size_t>(trainer.parameters().flat_size()), 0.0);
  const AdamW<T>& optimizer = trainer.optimizer();
  for (std::size_t r = 0; r < optimizer.owned().size(); ++r)
    std::copy_n(packed.begin() + optimizer.moment_starts()[r], optimizer.owned()[r].size(),
                flat.begin() + optimizer.owned()[r].begin);
  return flat;
}

template <class T>
void gather_moments(const std::vector<double>& flat, const Trainer<T>& trainer, const Tensor<State<T>, 1>& moments) {
  std::vector<double> packed(moments.extent(0), 0.0);
  const AdamW<T>& optimizer = trainer.optimizer();
  for (std::size_t r = 0; r < optimizer.owned().size(); ++r)
    std::copy_n(flat.begin() + optimizer.owned()[r].begin, optimizer.owned()[r].size(),
                packed.begin() + optimizer.moment_starts()[r]);
  to_device(packed, moments);
}

// What the optimizer updates, in fp32 or fp64, as it lies in the flat arrays; zero where this rank keeps no masters.
template <class T>
std::vector<double> masters(const Trainer<T>& trainer) {
  if constexpr (has_masters<T>)
    return spread_moments(trainer, trainer.optimizer().masters());
  else
    return to_host(trainer.parameters().flat_weights());
}

enum Array { weights_before, exp_avg, exp_avg_sq, gradients, weights_after, num_arrays };

// All that one step of the reference did, each rank's part.
struct Snapshot {
  std::array<ShardedCopy, num_arrays> arrays;
  double loss = 0;
  double gradient_norm = 0;
  Index steps_done = 0;     // before it
  Index data_position = 0;  // before it
  nlohmann::json loss_scaler;
};

template <class T>
ShardedCopy copy_of(const Trainer<T>& trainer, std::vector<double> values, bool owned) {
  return {trainer.parameters().parameters(), owned ? trainer.counted_owned() : trainer.counted_weights(),
          std::move(values)};
}

// The reference: a trainer on the ranks that take part in it, nothing on the others.
template <class T>
class Reference {
 public:
  Reference(const RunConfig& config, const VerifyOptions& options, const Communicator& world)
      : world_(world), group_(world.split(options.reference.empty() ? world.rank() : 0, world.rank(), "reference")) {
    takes_part_ = !options.reference.empty() || world.rank() == 0;
    if (!takes_part_)
      return;
    const RunConfig own = parse_run_config(to_toml(config), "the reference", options.reference, group_.size());
    const RunLayout layout = make_run_layout(own, group_.size());
    text_ = layout.text();
    mesh_.emplace(group_, layout.mesh);
    trainer_ = std::make_unique<Trainer<T>>(ExecSpace(), own, layout, *mesh_);
  }

  // Collective over the world.
  Snapshot step() {
    Snapshot snapshot;
    if (takes_part_)
      take_step(snapshot);
    std::array<double, 2> shared = {snapshot.loss, snapshot.gradient_norm};
    broadcast(world_, std::span<double>(shared), 0);
    snapshot.loss = shared[0];
    snapshot.gradient_norm = shared[1];
    std::array<Index, 2> counts = {snapshot.steps_done, snapshot.data_position};
    broadcast(world_, std::span<Index>(counts), 0);
    snapshot.steps_done = counts[0];
    snapshot.data_position = counts[1];
    snapshot.loss_scaler = nlohmann::json::parse(broadcast_text(world_, snapshot.loss_scaler.dump(), 0));
    return snapshot;
  }

 private:
  // A step that is skipped compares nothing: the next one is taken, at a lower loss scale.
  void take_step(Snapshot& snapshot) {
    while (!taken(snapshot)) {
    }
  }

  bool taken(Snapshot& snapshot) {
    Trainer<T>& trainer = *trainer_;
    const auto weights = [&] { return copy_of(trainer, masters(trainer), has_masters<T>); };
    snapshot.steps_done = trainer.steps_done();
    snapshot.data_position = trainer.data_position();
    snapshot.loss_scaler = trainer.loss_scaler().state();
    snapshot.arrays[weights_before] = weights();
    snapshot.arrays[exp_avg] = copy_of(trainer, spread_moments(trainer, trainer.optimizer().exp_avg()), true);
    snapshot.arrays[exp_avg_sq] = copy_of(trainer, spread_moments(trainer, trainer.optimizer().exp_avg_sq()), true);
    StepReport report = trainer.compute_gradients();
    snapshot.loss = report.loss;
    snapshot.gradient_norm = report.gradient_norm;
    snapshot.arrays[gradients] = copy_of(trainer, to_host(trainer.parameters().flat_gradients()), true);
    trainer.update(report);
    snapshot.arrays[weights_after] = weights();
    return !report.skipped;
  }

  const Communicator& world_;
  Communicator group_;
  bool takes_part_ = false;
  std::string text_;
  std::optional<ProcessMesh> mesh_;
  std::unique_ptr<Trainer<T>> trainer_;
};

// Planted: the first matrix that two neighbours on the tensor axis hold equal shares of is swapped between them.
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

// Tensors in groups of so many elements are put together at a time: the memory that a comparison costs.
constexpr Index group_elements = Index{1} << 22;

std::vector<std::vector<LogicalTensor>> in_groups(std::vector<LogicalTensor> tensors) {
  std::vector<std::vector<LogicalTensor>> groups;
  Index elements = group_elements;
  for (LogicalTensor& tensor : tensors) {
    Index size = 1;
    for (const Index extent : tensor.shape)
      size *= extent;
    if (elements + size > group_elements) {
      groups.emplace_back();
      elements = 0;
    }
    elements += size;
    groups.back().push_back(std::move(tensor));
  }
  return groups;
}

// One step of one layout against the reference's.
template <class T>
class Comparison {
 public:
  using Groups = std::vector<std::vector<LogicalTensor>>;

  Comparison(const Communicator& world, const Snapshot& reference, Groups& groups, Trainer<T>& trainer,
             LayoutErrors& errors)
      : world_(world), reference_(reference), groups_(groups), trainer_(trainer), errors_(errors) {}

  void run(Index step) {
    load_state();
    trainer_.restore(reference_.steps_done, reference_.data_position, 0);
    trainer_.loss_scaler().restore(reference_.loss_scaler);
    StepReport report = trainer_.compute_gradients();
    const std::string place = fmt::format("step {}", step + 1);
    errors_.loss.note(std::abs(report.loss - reference_.loss) / std::abs(reference_.loss), place);
    errors_.gradient_norm.note(
        std::abs(report.gradient_norm - reference_.gradient_norm) / std::abs(reference_.gradient_norm), place);
    compare(to_host(trainer_.parameters().flat_gradients()), gradients, std::nullopt, errors_.gradient);

    to_device(local_part(gradients, trainer_.parameters().parameters()), trainer_.parameters().flat_gradients());
    report.loss = reference_.loss;
    report.gradient_norm = reference_.gradient_norm;
    trainer_.update(report);
    compare(masters(trainer_), weights_after, weights_before, errors_.update);
  }

 private:
  std::vector<double> local_part(Array array, const std::vector<Parameter>& parameters) {
    std::vector<double> flat(static_cast<std::size_t>(trainer_.parameters().flat_size()), 0.0);
    for (std::vector<LogicalTensor>& group : groups_) {
      assemble(world_, reference_.arrays[array], group);
      for (const LogicalTensor& tensor : group)
        scatter(tensor, parameters, flat);
    }
    return flat;
  }

  void load_state() {
    const ParameterStore<T>& store = trainer_.parameters();
    std::vector<Parameter> shards = store.parameters();
    if (world_.context().planted_fault == PlantedFault::swap_shards)
      swap_a_shard(shards);
    const std::vector<double> weights = local_part(weights_before, shards);
    to_device(weights, store.flat_weights());
    if constexpr (has_masters<T>)
      gather_moments(weights, trainer_, trainer_.optimizer().masters());
    gather_moments(local_part(exp_avg, store.parameters()), trainer_, trainer_.optimizer().exp_avg());
    gather_moments(local_part(exp_avg_sq, store.parameters()), trainer_, trainer_.optimizer().exp_avg_sq());
  }

  // Our values against an array of the reference; relative to the change since `before` where that is given.
  void compare(std::vector<double> values, Array array, std::optional<Array> before, LargestError& largest) {
    const bool owned = array == gradients || has_masters<T>;
    const ShardedCopy ours = copy_of(trainer_, std::move(values), owned);
    const std::vector<IndexRange> held =
        owned ? trainer_.optimizer().owned() : std::vector<IndexRange>{{0, trainer_.parameters().flat_size()}};
    struct Row {
      std::string name;
      double norm, difference, deviation;
    };
    std::vector<Row> rows;
    double squares = 0;
    for (std::vector<LogicalTensor>& wanted : groups_) {
      std::vector<LogicalTensor> got = wanted;
      std::vector<LogicalTensor> old = wanted;
      assemble(world_, ours, got);
      assemble(world_, reference_.arrays[array], wanted);
      if (before)
        assemble(world_, reference_.arrays[*before], old);
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const double norm = before ? norm_of_difference(wanted[i].values, old[i].values) : norm_of(wanted[i].values);
        squares += norm * norm;
        rows.push_back({wanted[i].name, norm, norm_of_difference(got[i].values, wanted[i].values),
                        local_deviation(ours, got[i], held)});
      }
    }
    std::vector<double> deviations;
    for (const Row& row : rows)
      deviations.push_back(row.deviation);
    all_reduce(world_, std::span<double>(deviations), ReduceOp::max);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double measure = std::max(rows[i].norm, smallest_share * std::sqrt(squares));
      largest.note(rows[i].difference / measure, rows[i].name);
      errors_.copies.note(deviations[i] / measure, rows[i].name);
    }
  }

  const Communicator& world_;
  const Snapshot& reference_;
  Groups& groups_;
  Trainer<T>& trainer_;
  LayoutErrors& errors_;
};

struct Candidate {
  VerifiedLayout result;
  std::optional<RunConfig> config;
};

// "num_heads: 4 cannot be ...", the first problem of a report that heads its problems with a line. Where each of them
// stands is left away: in a text that nobody has seen.
std::string first_problem(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  for (int i = 0; i < 2; ++i)
    std::getline(lines >> std::ws, line);
  const std::string after_place = ": ";
  const std::size_t place = line.find(after_place);
  return place == std::string::npos ? line : line.substr(place + after_place.size());
}

std::vector<Candidate> candidates(const RunConfig& config, int world_size) {
  std::vector<Candidate> all;
  for (const std::vector<std::string>& overrides : layouts_to_verify(config, world_size)) {
    Candidate candidate;
    try {
      candidate.config = parse_run_config(to_toml(config), "layout", overrides, world_size);
      candidate.result.text = make_run_layout(*candidate.config, world_size).text();
    } catch (const Error& error) {
      candidate.result.text = text_of_layout(overrides);
      candidate.result.skipped = first_problem(error.what());
    }
    all.push_back(std::move(candidate));
  }
  return all;
}

}  // namespace

void LargestError::note(double error, const std::string& place) {
  if (!(error <= value)) {  // also NaN
    value = error;
    where = place;
  }
}

double LayoutErrors::worst() const {
  double most = 0;
  for (const LargestError& error : {loss, gradient_norm, gradient, update, copies})
    most = error.value <= most ? most : error.value;
  return most;
}

template <class T>
std::vector<VerifiedLayout> verify(const RunConfig& config, const VerifyOptions& options, const Communicator& world,
                                   const std::function<void(const VerifiedLayout&)>& done) {
  const PlantedFault planted = world.context().planted_fault;
  check_token_files(config, world);
  ParameterStore<T> whole;
  const Gpt<T> whole_model(whole, config.model.shape);
  std::vector<std::vector<LogicalTensor>> groups = in_groups(logical_tensors(whole.parameters()));
  std::vector<Candidate> all = candidates(config, world.size());
  world.plant(PlantedFault::none);  // the reference is right
  Reference<T> reference(config, options, world);
  for (Index step = 0; step < options.steps; ++step) {
    world.plant(PlantedFault::none);
    const Snapshot snapshot = reference.step();
    world.plant(planted);
    for (Candidate& candidate : all) {
      if (candidate.config) {
        const RunLayout layout = make_run_layout(*candidate.config, world.size());
        const ProcessMesh mesh(world, layout.mesh);
        Trainer<T> trainer(ExecSpace(), *candidate.config, layout, mesh);
        Comparison<T>(world, snapshot, groups, trainer, candidate.result.errors).run(step);
      }
      if (step + 1 == options.steps && world.rank() == 0)
        done(candidate.result);
    }
  }
  std::vector<VerifiedLayout> results;
  for (Candidate& candidate : all)
    results.push_back(std::move(candidate.result));
  return results;
}

double default_tolerance(const std::string& compute_type) {
  // Of 16-bit types: some ten roundings to 8 or 11 bits lie between a weight and its gradient, and shards round partial
  // sums that one rank never sees.
  if (compute_type == "bf16")
    return 0.05;
  if (compute_type == "fp16")
    return 0.01;
  return compute_type == "fp64" ? 1e-10 : 1e-4;
}

#define ESPALIER_INSTANTIATE(T)                                                                               \
  template std::vector<VerifiedLayout> verify<T>(const RunConfig&, const VerifyOptions&, const Communicator&, \
                                                 const std::function<void(const VerifiedLayout&)>&);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
