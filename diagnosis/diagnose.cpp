// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/diagnose.hpp"

#include <algorithm>
#include <tuple>

#include "diagnosis/find_end.hpp"
#include "diagnosis/find_stability.hpp"
#include "diagnosis/find_time.hpp"

namespace espalier {
namespace {

constexpr double min_share = 0.02;    // of a step: less is not worth a line
constexpr double fault_share = 0.05;  // faults from here on come first

bool has_times(const RecordedRun& run) {
  return !run.steps.empty() && static_cast<int>(run.ranks.size()) == run.config.layout.num_devices() &&
         std::none_of(run.ranks.begin(), run.ranks.end(), [](const auto& steps) { return steps.empty(); });
}

// All that costs time, however little.
std::vector<Finding> find_time(const RecordedRun& run, const StepProfile& profile) {
  std::vector<Finding> findings = find_faults(run, profile);
  find_settings(run, profile, findings);
  for (Finding& finding : find_limits(run, profile))
    findings.push_back(std::move(finding));
  for (Finding& finding : findings)
    finding.share = finding.seconds / profile.total_seconds();
  return findings;
}

void leave_out_small(std::vector<Finding>& findings) {
  std::erase_if(findings, [](const Finding& finding) { return finding.share < min_share; });
}

// A batch that has grown, and may have made the run unstable, is not to grow more for speed.
void leave_out_larger_batches(std::vector<Finding>& time, const std::vector<Finding>& stability) {
  const bool has_grown = std::ranges::any_of(
      stability, [](const Finding& finding) { return finding.cause == Cause::effective_batch && finding.size > 1; });
  if (has_grown)
    for (Finding& finding : time)
      std::erase_if(finding.changes, &Change::grows_batch);
}

void rank(std::vector<Finding>& findings) {
  const auto order = [](const Finding& finding) {
    const Concern concern = concern_of(finding.cause);
    const bool first = concern == Concern::time && finding.is_fault && finding.share >= fault_share;
    return std::tuple(concern, !first, -finding.risk, -finding.seconds);
  };
  std::stable_sort(findings.begin(), findings.end(),
                   [&](const Finding& a, const Finding& b) { return order(a) < order(b); });
}

}  // namespace

const Finding* gravest(const Diagnosis& diagnosis) {
  const auto found =
      std::ranges::find_if(diagnosis.findings, [](const Finding& finding) { return !finding.verdict.empty(); });
  return found == diagnosis.findings.end() ? nullptr : &*found;
}

const char* heading(Concern concern) {
  switch (concern) {
    case Concern::end: return "why it ended, or makes no progress";
    case Concern::time: return "where the time goes";
    case Concern::stability: return "stability";
  }
  return "";
}

Diagnosis diagnose(const RecordedRun& run, const RecordedRun* against) {
  Diagnosis diagnosis{.findings = find_end(run)};
  std::vector<Finding> time;
  if (has_times(run)) {
    diagnosis.profile = profile_steps(run);
    time = find_time(run, *diagnosis.profile);
    leave_out_small(time);
  }
  std::vector<Finding> stability = find_instability(run);
  if (against != nullptr) {
    for (Finding& finding : find_effective_batch(*against, run, !stability.empty()))
      stability.push_back(std::move(finding));
    if (diagnosis.profile && has_times(*against)) {
      const StepProfile before = profile_steps(*against);
      diagnosis.comparison = compare_runs(*against, before, find_time(*against, before), run, *diagnosis.profile, time);
    } else {
      diagnosis.comparison.emplace();
      diagnosis.comparison->against = against->directory;
      diagnosis.comparison->differences = differences_between(*against, run);
    }
  }
  leave_out_larger_batches(time, stability);
  for (auto* const part : {&time, &stability})
    for (Finding& finding : *part)
      diagnosis.findings.push_back(std::move(finding));
  rank(diagnosis.findings);
  return diagnosis;
}

}  // namespace espalier
