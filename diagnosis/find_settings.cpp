// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/median.hpp"
#include "diagnosis/find_time.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

// Products below are too small for units of 16 bits to be much faster.
constexpr Index min_hidden_size = 256;

double typical_compute(const StepProfile& profile) {
  std::vector<double> seconds;
  for (const RankProfile& rank : profile.ranks)
    seconds.push_back(rank.compute());
  return median_of(std::move(seconds));
}

void find_crowded_cores(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  const int threads = run.facts.host_threads;
  const int cores = run.facts.host_cores;
  if (cores == 0 || threads <= cores)
    return;
  const int ranks = std::max(1, run.facts.threads > 0 ? threads / run.facts.threads : 1);
  const double share = static_cast<double>(cores) / threads;
  Finding finding{.cause = Cause::crowded_cores,
                  .title = {},
                  .seconds = (1 - share) * typical_compute(profile),
                  .size = 1 / share,
                  .unit = "threads a core",
                  .is_fault = true};
  finding.title = fmt::format("{} share {} on a host: they take turns, and wait for each other at every barrier",
                              counted(threads, "thread"), counted(cores, "core"));
  finding.evidence = {fmt::format("{} with {} each", counted(ranks, "rank"), counted(run.facts.threads, "thread"))};
  finding.changes = {
      {.setting = ranks > cores ? fmt::format("at most {} on this host", counted(cores, "rank"))
                                : fmt::format("OMP_NUM_THREADS={}, or not set: then Espalier uses one thread per core",
                                              cores / ranks),
       .gain_seconds = finding.seconds,
       .estimated_by = "the CPU time that other threads took; waiting at barriers costs more"}};
  // Then they are why all compute longer than predicted, which is no finding of its own.
  if (const auto slow = std::ranges::find(findings, Cause::slow_compute, &Finding::cause); slow != findings.end()) {
    finding.evidence.push_back(slow->title);
    finding.seconds = finding.changes.front().gain_seconds = std::max(finding.seconds, slow->seconds);
    findings.erase(slow);
  }
  findings.push_back(std::move(finding));
}

// fp64 proves, it does not train; fp32 is what there is where 16 bits have no units of their own.
void find_wide_numbers(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  const bool is_fp64 = run.config.layout.precision == Precision::fp64;
  const bool fp32_is_slow = run.facts.fast_16_bits && run.config.model.shape.hidden_size >= min_hidden_size;
  if (!is_fp64 && !(run.config.layout.precision == Precision::fp32 && fp32_is_slow))
    return;
  const char* const narrower = run.facts.fast_16_bits ? "bf16" : "fp32";
  Finding finding{.cause = Cause::precision, .title = {}, .unit = "times the bytes of a number"};
  finding.size = is_fp64 && run.facts.fast_16_bits ? 4 : 2;
  finding.seconds = (1 - 1 / finding.size) * typical_compute(profile);
  finding.title = fmt::format("the run computes in {}, {} times as wide as {}", to_string(run.config.layout.precision),
                              finding.size, narrower);
  finding.evidence = {is_fp64 ? "fp64 is for tests of layouts; training does not need it"
                              : "this machine has matrix units for 16-bit types"};
  finding.changes = {{.setting = fmt::format("precision.compute = \"{}\"", narrower),
                      .gain_seconds = finding.seconds,
                      .estimated_by = "forward and backward in proportion to the bytes of a number, an upper bound"}};
  findings.push_back(std::move(finding));
}

}  // namespace

void find_settings(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  if (run.config.emulates_operations())
    return;
  find_crowded_cores(run, profile, findings);
  find_wide_numbers(run, profile, findings);
}

}  // namespace espalier
