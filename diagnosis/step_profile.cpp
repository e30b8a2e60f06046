// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/step_profile.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/median.hpp"
#include "diagnosis/finding.hpp"
#include "io/records/run_paths.hpp"
#include "models/cost.hpp"

namespace espalier {
namespace {

constexpr Index max_steps = 200;

// Emulated operations last as configured; a rate of GEMMs or FLOPs say only roughly what a stage with the head takes.
constexpr double emulated_tolerance = 0.08;
constexpr double predicted_tolerance = 0.15;
constexpr double counted_tolerance = 0.3;

// The steps that all ranks have, of the last launch, without its first.
std::pair<Index, Index> steps_to_look_at(const RecordedRun& run) {
  Index last = run.steps.back().times.step;
  for (const auto& rank : run.ranks)
    last = rank.empty() ? 0 : std::min(last, rank.back().step);
  Index first = std::max(run.steps.front().times.step, run.facts.first_step);
  if (first < last)
    ++first;
  return {std::clamp(first, std::max<Index>(0, last - max_steps + 1), std::max<Index>(0, last)), last};
}

std::vector<StepTimes> between(const std::vector<StepTimes>& steps, Index first, Index last) {
  std::vector<StepTimes> chosen;
  std::copy_if(steps.begin(), steps.end(), std::back_inserter(chosen),
               [&](const StepTimes& step) { return step.step >= first && step.step <= last; });
  return chosen;
}

template <class Value>
std::vector<double> values_of(const std::vector<StepTimes>& steps, const Value& value) {
  std::vector<double> values;
  for (const StepTimes& step : steps)
    values.push_back(value(step));
  return values;
}

double mean(const std::vector<double>& values) {
  return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Of the steps in which there was one.
double median_of_positive(std::vector<double> values) {
  std::erase_if(values, [](double value) { return value <= 0; });
  return median_of(std::move(values));
}

RankProfile profile_rank(const std::vector<StepTimes>& steps, const PerAxis& coordinates) {
  RankProfile rank{.coordinates = coordinates, .seconds = {}};
  for (std::size_t i = 0; i < num_phases; ++i) {
    const auto phase = static_cast<Phase>(i);
    const std::vector<double> seconds = values_of(steps, [&](const StepTimes& step) { return step.seconds[phase]; });
    rank.seconds[phase] = phase == Phase::data || phase == Phase::checkpoint ? mean(seconds) : median_of(seconds);
  }
  rank.activation_transit =
      median_of_positive(values_of(steps, [](const StepTimes& step) { return step.activation_transit; }));
  rank.gradient_transit =
      median_of_positive(values_of(steps, [](const StepTimes& step) { return step.gradient_transit; }));
  return rank;
}

// All ranks wait for the one that reads longest.
void add_stalls(StepProfile& profile, const std::vector<std::vector<StepTimes>>& ranks) {
  std::vector<double> longest(ranks.front().size());
  std::map<int, double> seconds_longest;
  for (std::size_t step = 0; step < longest.size(); ++step) {
    int slowest = 0;
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
      if (step < ranks[to_size(rank)].size() && ranks[to_size(rank)][step].seconds[Phase::data] > longest[step]) {
        longest[step] = ranks[to_size(rank)][step].seconds[Phase::data];
        slowest = rank;
      }
    seconds_longest[slowest] += longest[step];
  }
  profile.stall_seconds = mean(longest);
  profile.stalled_rank =
      std::max_element(seconds_longest.begin(), seconds_longest.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      })->first;
}

// The median over the records of the steps looked at.
void add_rates(StepProfile& profile, const RecordedRun& run) {
  std::vector<double> tokens_per_second;
  std::vector<double> gemm_fraction;
  std::vector<double> mfu;
  for (const StepRecord& step : run.steps) {
    if (step.times.step < profile.first_step || step.times.step > profile.last_step)
      continue;
    tokens_per_second.push_back(step.tokens_per_second);
    gemm_fraction.push_back(step.gemm_fraction);
    mfu.push_back(step.mfu.value_or(0));
  }
  profile.tokens_per_second = median_of_positive(std::move(tokens_per_second));
  profile.gemm_fraction = median_of_positive(std::move(gemm_fraction));
  profile.mfu = median_of_positive(std::move(mfu));
}

void add_calibrated_compute(StepProfile& profile, const RecordedRun& run) {
  if (!run.predicted_time || !run.is_on_one_host() || !run.predicted_time->calibrated)
    return;
  profile.calibrated_error = run.predicted_time->error_share;
  for (const PhaseSeconds& stage : run.predicted_time->stages)
    profile.calibrated_compute.push_back(stage[Phase::forward] + stage[Phase::backward]);
}

// Predicted, by the simulator where operations are imitated; counted where a run has no prediction.
void add_stage_work(StepProfile& profile, const RecordedRun& run) {
  const RunConfig& config = run.config;
  const auto num_stages = to_size(config.layout.pipeline);
  profile.stage_work.assign(num_stages, 1);
  if (num_stages == 1)
    return;
  if (run.predicted_time && run.predicted_time->stages.size() == num_stages) {
    const bool emulated = config.emulates_operations();
    profile.work_source = RunFile::prediction;
    profile.work_tolerance = emulated
                                 ? emulated_tolerance
                                 : std::clamp(run.predicted_time->error_share, predicted_tolerance, counted_tolerance);
    for (std::size_t stage = 0; stage < num_stages; ++stage) {
      const PhaseSeconds& seconds = run.predicted_time->stages[stage];
      profile.stage_work[stage] = seconds[Phase::forward] + seconds[Phase::backward];
    }
    return;
  }
  profile.work_source = "counted FLOPs";
  profile.work_tolerance = counted_tolerance;
  const std::vector<Index> layers = config.layout.layers_of_stages();
  if (layers.empty())
    return;
  LayerCosts costs;  // the ends cost the same under every recomputation
  for (std::size_t stage = 0; stage < num_stages; ++stage) {
    costs =
        layer_flops(config.model.shape, config.sequence_length, config.layout.recompute_of(static_cast<int>(stage)));
    profile.stage_work[stage] = static_cast<double>(layers[stage]) * costs.block;
  }
  profile.stage_work.front() += costs.embedding;
  profile.stage_work.back() += costs.head;
}

}  // namespace

StepProfile profile_steps(const RecordedRun& run) {
  StepProfile profile;
  std::tie(profile.first_step, profile.last_step) = steps_to_look_at(run);
  std::vector<std::vector<StepTimes>> ranks;
  for (int rank = 0; rank < run.config.layout.num_devices(); ++rank) {
    ranks.push_back(between(run.ranks[to_size(rank)], profile.first_step, profile.last_step));
    profile.ranks.push_back(profile_rank(ranks.back(), run.config.layout.mesh().coordinates(rank)));
  }
  const std::vector<StepTimes>& root = ranks.front();
  profile.num_steps = static_cast<Index>(root.size());
  const auto without_data = [](const StepTimes& step) { return step.step_seconds - step.seconds[Phase::data]; };
  profile.step_seconds = median_of(values_of(root, without_data)) + profile.ranks.front().seconds[Phase::data];
  add_stalls(profile, ranks);
  // Each save is noted with the step after it, and one is due with every interval: the last is not seen.
  profile.checkpoint_seconds = profile.ranks.front().seconds[Phase::checkpoint];
  add_rates(profile, run);
  add_stage_work(profile, run);
  add_calibrated_compute(profile, run);
  return profile;
}

std::vector<std::vector<double>> work_of_replicas(const RecordedRun& run, const StepProfile& profile) {
  const auto replicas = to_size(run.config.layout.data);
  const auto stages = to_size(run.config.layout.pipeline);
  std::vector<std::vector<double>> work(replicas, std::vector<double>(stages));
  std::vector<std::vector<double>> exchange(replicas, std::vector<double>(stages, 1e300));
  for (const RankProfile& rank : profile.ranks) {
    const std::size_t replica = to_size(rank.coordinates[Axis::dp]);
    const std::size_t stage = to_size(rank.coordinates[Axis::pp]);
    work[replica][stage] = std::max(work[replica][stage], rank.compute());
    exchange[replica][stage] = std::min(exchange[replica][stage], rank.seconds[Phase::tensor_comm]);
  }
  for (std::size_t replica = 0; replica < replicas; ++replica)
    for (std::size_t stage = 0; stage < stages; ++stage)
      work[replica][stage] += exchange[replica][stage];
  return work;
}

PipelineCosts pipeline_of(const RecordedRun& run, const StepProfile& profile,
                          const std::vector<double>& stage_seconds) {
  double forward = 0;
  double compute = 0;
  for (const RankProfile& rank : profile.ranks) {
    forward += rank.seconds[Phase::forward];
    compute += rank.compute();
  }
  const double forward_share = compute > 0 ? forward / compute : 1.0 / 3;
  const auto chunks = static_cast<std::size_t>(run.config.layout.virtual_stages);
  PipelineCosts costs;
  costs.schedule = run.config.layout.schedule;
  costs.microbatches = run.config.layout.num_microbatches();
  const double parts = static_cast<double>(costs.microbatches) * static_cast<double>(chunks);
  for (const double seconds : stage_seconds) {
    const double each = seconds / parts;
    const double backward = each * (1 - forward_share);
    costs.chunks.emplace_back(
        chunks,
        ChunkSeconds{.forward = each * forward_share, .backward_input = backward / 2, .backward_weight = backward / 2});
  }
  return costs;
}

}  // namespace espalier
