// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/verify/verify.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <string>

#include "models/declared_parameters.hpp"
#include "parallel/collectives/collectives.hpp"
#include "training/config/shard_over.hpp"
#include "training/loop/check_token_files.hpp"
#include "training/step/typed_trainer.hpp"
#include "training/verify/fault_injection.hpp"
#include "training/verify/layouts_to_verify.hpp"
#include "training/verify/logical_tensors.hpp"
#include "training/verify/saved_reference.hpp"
#include "training/verify/verify_reference.hpp"

namespace espalier {
namespace {

constexpr double smallest_share = 1e-3;  // of the global norm: below it a tensor's own norm is no measure

// One step of one layout against the reference's.
class Comparison {
 public:
  using Groups = std::vector<std::vector<LogicalTensor>>;

  Comparison(const Communicator& world, const Snapshot& reference, Groups& groups, Trainer& trainer,
             InjectedFault fault, LayoutErrors& errors)
      : world_(world),
        reference_(reference),
        groups_(groups),
        trainer_(trainer),
        arrays_(trainer.arrays()),
        fault_(fault),
        errors_(errors) {}

  void run(Index step) {
    load_state();
    trainer_.restore(reference_.steps_done, reference_.data_position, 0);
    trainer_.loss_scaler().restore(reference_.loss_scaler);
    StepReport report = trainer_.compute_gradients();
    const std::string step_text = fmt::format("step {}", step + 1);
    errors_.loss.note(std::abs(report.loss - reference_.loss) / std::abs(reference_.loss), step_text);
    errors_.gradient_norm.note(
        std::abs(report.gradient_norm - reference_.gradient_norm) / std::abs(reference_.gradient_norm), step_text);
    compare(scattered(arrays_.gradients, arrays_.flat_size), SnapshotArray::gradients, std::nullopt, errors_.gradient);

    pack(local_part(SnapshotArray::gradients, trainer_.parameters()), arrays_.gradients);
    report.loss = reference_.loss;
    report.gradient_norm = reference_.gradient_norm;
    trainer_.update(report);
    compare(master_weights(trainer_), SnapshotArray::weights_after, SnapshotArray::weights_before, errors_.update);
  }

 private:
  std::vector<double> local_part(SnapshotArray array, const std::vector<Parameter>& parameters) {
    std::vector<double> flat(static_cast<std::size_t>(arrays_.flat_size), 0.0);
    for (std::vector<LogicalTensor>& group : groups_) {
      assemble(world_, reference_[array], group);
      for (const LogicalTensor& tensor : group)
        scatter(tensor, parameters, flat);
    }
    return flat;
  }

  void load_state() {
    const std::vector<Parameter>& parameters = trainer_.parameters();
    const std::vector<double> weights = local_part(SnapshotArray::weights_before, with_fault(fault_, parameters));
    for (const FlatArray& array : arrays_.weights_and_master_weights())
      pack(weights, array);
    pack(local_part(SnapshotArray::exp_avg, parameters), arrays_.exp_avg);
    pack(local_part(SnapshotArray::exp_avg_sq, parameters), arrays_.exp_avg_sq);
  }

  // Our values against an array of the reference; relative to the change since `before` where that is given.
  void compare(std::vector<double> values, SnapshotArray array, std::optional<SnapshotArray> before,
               LargestError& largest) {
    const bool owned = array == SnapshotArray::gradients || arrays_.has_master_weights();
    const ShardedCopy ours = copy_of(trainer_, std::move(values), owned);
    const std::vector<IndexRange> held = owned ? arrays_.exp_avg.held : arrays_.weights.held;
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
      assemble(world_, reference_[array], wanted);
      if (before)
        assemble(world_, reference_[*before], old);
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
  Trainer& trainer_;
  const TrainedArrays arrays_;
  InjectedFault fault_;
  LayoutErrors& errors_;
};

struct LayoutToTry {
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
  const std::string separator = ": ";
  const std::size_t found = line.find(separator);
  return found == std::string::npos ? line : line.substr(found + separator.size());
}

std::vector<LayoutToTry> layouts_to_try(const RunConfig& config, const Communicator& world) {
  std::vector<LayoutToTry> all;
  for (const Layout& layout : layouts_to_verify(config, world.size())) {
    LayoutToTry candidate;
    try {
      candidate.config = parse_run_config(to_toml(config), "layout", settings_to_verify(layout), world.size());
      resolve_ranks_per_node(*candidate.config, world);
      candidate.result.text = make_run_layout(*candidate.config, world.size()).short_text();
    } catch (const Error& error) {
      candidate.result.text = layout.short_text();
      candidate.result.skipped = first_problem(error.what());
    }
    all.push_back(std::move(candidate));
  }
  return all;
}

}  // namespace

void LargestError::note(double error, const std::string& found_at) {
  if (!(error <= value)) {  // also NaN
    value = error;
    where = found_at;
  }
}

double LayoutErrors::worst() const {
  double most = 0;
  for (const LargestError& error : {loss, gradient_norm, gradient, update, copies})
    most = error.value <= most ? most : error.value;
  return most;
}

std::vector<VerifiedLayout> verify(const RunConfig& config, const VerifyOptions& options, const Communicator& world,
                                   const std::function<void(const VerifiedLayout&)>& done) {
  check_token_files(config, world);
  const std::vector<Parameter> whole = whole_parameters(config.model.shape);
  std::vector<std::vector<LogicalTensor>> groups = in_groups(logical_tensors(whole));
  std::vector<LayoutToTry> all = layouts_to_try(config, world);
  std::optional<Reference> reference;
  std::optional<SavedReference> saved;
  if (options.against.empty())
    reference.emplace(config, options, world);
  else
    saved.emplace(options.against, config, world);
  for (Index step = 0; step < options.steps; ++step) {
    const Snapshot snapshot = saved ? saved->step(step, whole) : reference->step();
    for (LayoutToTry& candidate : all) {
      if (candidate.config) {
        const Layout layout = make_run_layout(*candidate.config, world.size());
        const InjectedFault fault = options.injected;
        const ProcessMesh mesh = with_fault(fault, ProcessMesh(world, layout.mesh(), layout.virtual_stages > 1));
        const auto trainer = make_trainer(ExecSpace(), with_fault(fault, *candidate.config, mesh), layout, mesh);
        const auto injected = inject(fault, *trainer, *candidate.config, mesh);
        Comparison(world, snapshot, groups, *trainer, fault, candidate.result.errors).run(step);
      }
      if (step + 1 == options.steps && world.rank() == 0)
        done(candidate.result);
    }
  }
  std::vector<VerifiedLayout> results;
  for (LayoutToTry& candidate : all)
    results.push_back(std::move(candidate.result));
  return results;
}

double default_tolerance(Precision compute) {
  // Of 16-bit types: some ten roundings to 8 or 11 bits lie between a weight and its gradient, and shards round partial
  // sums that one rank never sees.
  if (compute == Precision::bf16)
    return 0.05;
  if (compute == Precision::fp16)
    return 0.01;
  return compute == Precision::fp64 ? 1e-10 : 1e-4;
}

}  // namespace espalier
