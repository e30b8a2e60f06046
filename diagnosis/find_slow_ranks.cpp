// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/median.hpp"
#include "diagnosis/find_time.hpp"
#include "diagnosis/finding.hpp"

namespace espalier {
namespace {

constexpr double slow_among_equals = 0.08;  // ranks differ by a little on any machine

std::string coordinates_text(const RankProfile& rank) {
  return fmt::format("stage {}, replica {}, tensor {}", rank.coordinates[Axis::pp], rank.coordinates[Axis::dp],
                     rank.coordinates[Axis::tp]);
}

bool has_peers(const StepProfile& profile, std::size_t rank) {
  const int stage = profile.ranks[rank].coordinates[Axis::pp];
  return std::count_if(profile.ranks.begin(), profile.ranks.end(),
                       [&](const RankProfile& other) { return other.coordinates[Axis::pp] == stage; }) > 1;
}

// Seconds that the forward and backward of each rank should take by the others; its own where it is alone.
std::vector<double> expected_compute(const StepProfile& profile) {
  std::vector<double> expected;
  for (std::size_t rank = 0; rank < profile.ranks.size(); ++rank) {
    const int stage = profile.ranks[rank].coordinates[Axis::pp];
    std::vector<double> peers;
    std::vector<double> others;
    for (std::size_t i = 0; i < profile.ranks.size(); ++i) {
      const RankProfile& other = profile.ranks[i];
      if (i == rank)
        continue;
      if (other.coordinates[Axis::pp] == stage)
        peers.push_back(other.compute());
      const double work = profile.stage_work[to_size(other.coordinates[Axis::pp])];
      if (work > 0)
        others.push_back(other.compute() * profile.stage_work[to_size(stage)] / work);
    }
    expected.push_back(!peers.empty()    ? median_of(peers)
                       : !others.empty() ? median_of(others)
                                         : profile.ranks[rank].compute());
  }
  return expected;
}

// How many times as long as in health a rank takes, where that is too much to be chance; else 1.
struct Slowness {
  double ratio = 1;
  std::optional<double> predicted = {};  // seconds in health, where a prediction knows them better than the others
};

// While a rank is slow, the others of its host have cores and memory more to themselves, and show less than what it
// computes in health: where a calibrated prediction lies above them by more than its own error, it says how long.
Slowness slowness(const StepProfile& profile, std::size_t rank, double by_others) {
  const double compute = profile.ranks[rank].compute();
  const double tolerance = has_peers(profile, rank) ? slow_among_equals : profile.work_tolerance;
  if (by_others <= 0 || compute <= (1 + tolerance) * by_others)
    return {};
  if (!profile.calibrated_compute.empty()) {
    const double predicted = profile.calibrated_compute[to_size(profile.ranks[rank].coordinates[Axis::pp])];
    if (predicted > (1 + profile.calibrated_error) * by_others && compute > (1 + tolerance) * predicted)
      return {compute / predicted, predicted};
  }
  return {compute / by_others};
}

// A rank that is as fast as the others.
void heal(RankProfile& rank, double ratio) {
  rank.seconds[Phase::forward] /= ratio;
  rank.seconds[Phase::backward] /= ratio;
}

// Seconds of each replica's pipeline with the work of `profile`, run by the schedule.
std::vector<double> windows(const RecordedRun& run, const StepProfile& profile) {
  std::vector<double> seconds;
  for (const std::vector<double>& stages : work_of_replicas(run, profile))
    seconds.push_back(pipeline_time(pipeline_of(run, profile, stages)).window);
  return seconds;
}

// The replicas wait for the longest of them.
double longest(const std::vector<double>& windows) { return *std::max_element(windows.begin(), windows.end()); }

// What a step gains if this rank becomes as fast as the others, and whatever else is slow stays so.
double gain_of_healing(const RecordedRun& run, const StepProfile& profile, std::vector<double> replicas,
                       std::size_t rank, double ratio) {
  const double now = longest(replicas);
  StepProfile healed = profile;
  heal(healed.ranks[rank], ratio);
  const std::size_t replica = to_size(profile.ranks[rank].coordinates[Axis::dp]);
  replicas[replica] = pipeline_time(pipeline_of(run, profile, work_of_replicas(run, healed)[replica])).window;
  return now - longest(replicas);
}

// The step with this rank as it is against the step with it as the others are, were nothing else slow: its replica's
// pipeline, run twice.
double cost_of_slow_rank(const RecordedRun& run, const StepProfile& profile, std::size_t rank) {
  const StepProfile healthy = without_slow_ranks(profile);
  const PerAxis& coordinates = profile.ranks[rank].coordinates;
  const std::vector<double> others = work_of_replicas(run, healthy)[to_size(coordinates[Axis::dp])];
  std::vector<double> with = others;
  with[to_size(coordinates[Axis::pp])] += profile.ranks[rank].compute() - healthy.ranks[rank].compute();
  return pipeline_time(pipeline_of(run, profile, with)).window -
         pipeline_time(pipeline_of(run, profile, others)).window;
}

}  // namespace

StepProfile without_slow_ranks(const StepProfile& profile) {
  const std::vector<double> expected = expected_compute(profile);
  StepProfile healthy = profile;
  for (std::size_t rank = 0; rank < profile.ranks.size(); ++rank)
    heal(healthy.ranks[rank], slowness(profile, rank, expected[rank]).ratio);
  return healthy;
}

void find_slow_ranks(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  const std::vector<double> expected = expected_compute(profile);
  const std::vector<double> replicas = windows(run, profile);
  const std::size_t first = findings.size();
  for (std::size_t rank = 0; rank < profile.ranks.size(); ++rank) {
    const double compute = profile.ranks[rank].compute();
    const auto [ratio, predicted] = slowness(profile, rank, expected[rank]);
    if (ratio <= 1)
      continue;
    Finding finding{.cause = Cause::slow_rank, .title = {}, .size = ratio, .unit = "times as long", .is_fault = true};
    finding.seconds = cost_of_slow_rank(run, profile, rank);
    finding.title = fmt::format("rank {} ({}) computes {:.0f} % longer than {}", rank, run.facts.host_of(rank),
                                100 * (ratio - 1), predicted ? "predicted" : "the others for the same work");
    finding.ranks = {static_cast<int>(rank)};
    finding.evidence = {
        fmt::format("forward and backward take {:.4g} s a step on it, {:.4g} s by {}", compute, expected[rank],
                    has_peers(profile, rank) ? "the other ranks of its stage"
                                             : fmt::format("the other stages (work by {})", profile.work_source)),
        coordinates_text(profile.ranks[rank])};
    if (predicted)
      finding.evidence.push_back(
          fmt::format("{} predicts {:.4g} s: the others are quicker while it leaves them more of "
                      "the host",
                      run.predicted_time->source, *predicted));
    const std::string what_slows =
        "look for other processes, ranks bound to the same cores, a low clock, high temperature, memory errors";
    finding.changes = {{.setting = run.is_on_one_host() ? fmt::format("free the cores of rank {}: {}", rank, what_slows)
                                                        : fmt::format("remove {} from the job, or free its cores: {}",
                                                                      run.facts.host_of(rank), what_slows),
                        .gain_seconds = gain_of_healing(run, profile, replicas, rank, ratio),
                        .estimated_by = "the simulated schedule with only this rank as fast as the others"}};
    findings.push_back(std::move(finding));
  }
  if (findings.size() - first < 2)
    return;
  const double all = longest(replicas) - longest(windows(run, without_slow_ranks(profile)));
  for (std::size_t i = first; i < findings.size(); ++i)
    findings[i].evidence.push_back(fmt::format("with all {} slow ranks as fast as the others a step gains {:.4g} s",
                                               findings.size() - first, all));
}

}  // namespace espalier
