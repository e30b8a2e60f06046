// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/find_stability.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/median.hpp"
#include "diagnosis/step_profile.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

constexpr std::size_t window_steps = 32;
constexpr std::size_t min_steps = 8;    // before which nothing is far from anything
constexpr double far_away = 6;          // standard deviations
constexpr double min_deviation = 0.01;  // of the median
constexpr double loss_rise = 1.1;
constexpr double norm_rise = 3;
constexpr double skipped_share = 0.02;
constexpr double collapse = 1024;

void add_spikes(const RecordedRun& run, Cause cause, const char* what, double StepRecord::*value, double min_rise,
                std::vector<Finding>& findings) {
  std::vector<Index> steps;
  std::vector<double> values;
  for (const StepRecord& step : run.steps) {
    steps.push_back(step.times.step);
    values.push_back(step.*value);
  }
  const std::vector<Spike> spikes = find_spikes(steps, values, min_rise);
  if (spikes.empty())
    return;
  const Spike& worst =
      *std::max_element(spikes.begin(), spikes.end(), [](const Spike& a, const Spike& b) { return a.z < b.z; });
  std::vector<std::string> where;
  for (std::size_t i = 0; i < std::min<std::size_t>(spikes.size(), 8); ++i)
    where.push_back(fmt::format("{}", spikes[i].first_step));
  Finding finding{.cause = cause, .title = {}, .size = worst.value / worst.before, .unit = "times the steps before"};
  finding.title = fmt::format("{} of the {}: at step {} it rises from {:.4g} to {:.4g}",
                              counted(static_cast<Index>(spikes.size()), "spike"), what, worst.first_step, worst.before,
                              worst.value);
  finding.risk = std::min(0.9, 0.3 + 0.1 * static_cast<double>(spikes.size()));
  finding.evidence = {
      fmt::format("at step{} {}{}", spikes.size() > 1 ? "s" : "", fmt::join(where, ", "),
                  spikes.size() > where.size() ? ", ..." : ""),
      fmt::format("the largest is {:.0f} standard deviations above the {} steps before it", worst.z, worst.num_before)};
  finding.changes = {calmer(run)};
  findings.push_back(std::move(finding));
}

// The name of the first number of a step that is none; "" where there is none. Gradients that overflow the loss scale
// of fp16 are no harm.
std::string not_finite_in(const StepRecord& step, bool scales_loss) {
  if (!std::isfinite(step.loss))
    return fmt::format("the loss is {}", step.loss);
  if (!std::isfinite(step.gradient_norm) && !scales_loss)
    return fmt::format("the gradient norm is {}", step.gradient_norm);
  if (step.validation_loss && !std::isfinite(*step.validation_loss))
    return fmt::format("the validation loss is {}", *step.validation_loss);
  return "";
}

void find_not_finite(const RecordedRun& run, std::vector<Finding>& findings) {
  const bool scales_loss = run.config.layout.precision == Precision::fp16;
  const auto found = std::ranges::find_if(
      run.steps, [&](const StepRecord& step) { return !not_finite_in(step, scales_loss).empty(); });
  if (found == run.steps.end())
    return;
  Finding finding{.cause = Cause::not_finite, .title = {}, .risk = 1, .verdict = "not finite"};
  finding.title = fmt::format("{} at step {}", not_finite_in(*found, scales_loss), found->times.step);
  if (findings.empty())  // else a divergence has reported them
    add_causes_of_instability(run, found->times.step, finding);
  if (scales_loss)
    finding.changes.push_back({.setting = "precision.compute = \"bf16\""});
  findings.push_back(std::move(finding));
}

void find_loss_scale(const RecordedRun& run, std::vector<Finding>& findings) {
  if (run.config.layout.precision != Precision::fp16 || run.steps.empty())
    return;
  double highest = run.config.precision.loss_scale.initial;
  for (const StepRecord& step : run.steps)
    highest = std::max(highest, step.loss_scale);
  const StepRecord& last = run.steps.back();
  const bool lowest = last.loss_scale <= run.config.precision.loss_scale.minimum && last.loss_scale < highest;
  if (lowest || last.loss_scale * collapse <= highest) {
    Finding finding{
        .cause = Cause::loss_scale_collapse, .title = {}, .size = highest / last.loss_scale, .unit = "times lower"};
    finding.title = fmt::format("the loss scale has fallen from {:g} to {:g}{}", highest, last.loss_scale,
                                lowest ? ", its minimum" : "");
    finding.risk = 0.8;
    finding.evidence = {"gradients overflow fp16 repeatedly; meanwhile small ones are lost"};
    finding.changes = {{.setting = "precision.compute = \"bf16\""}, calmer(run)};
    findings.push_back(std::move(finding));
  }
}

// In every precision: fp16 skips what overflows under the loss scale, the spike guard by its policy. What was
// skipped before the first step of the record is not known to be of it.
void find_skipped_steps(const RecordedRun& run, std::vector<Finding>& findings) {
  Index anomalies = 0;
  Index overflows = 0;
  Index before = run.steps.empty() || run.steps.front().times.step == 1 ? 0 : run.steps.front().skipped_steps;
  for (const StepRecord& step : run.steps) {
    if (step.skipped_steps > before)
      ++(step.is_anomaly() ? anomalies : overflows);
    before = step.skipped_steps;
  }
  const Index skipped = anomalies + overflows;
  const double share = static_cast<double>(skipped) / static_cast<double>(std::max<std::size_t>(1, run.steps.size()));
  if (share <= skipped_share)
    return;
  Finding finding{.cause = Cause::skipped_steps, .title = {}, .share = share, .size = share, .unit = "of the steps"};
  finding.title = fmt::format("{} of {} steps were skipped", skipped, run.steps.size());
  finding.risk = std::min(0.9, 0.2 + share);
  if (overflows > 0) {
    finding.evidence.push_back(
        fmt::format("of {} a gradient overflowed {}", overflows, to_string(run.config.layout.precision)));
    finding.changes = {{.setting = "precision.compute = \"bf16\""},
                       {.setting = "a longer precision.loss_scale_growth_interval"}};
  }
  if (anomalies > 0) {
    finding.evidence.push_back(
        fmt::format("{} were spikes or not finite, which stability.on_spike = \"skip\" skips", anomalies));
    finding.changes.push_back(calmer(run));
  }
  findings.push_back(std::move(finding));
}

}  // namespace

std::vector<Spike> find_spikes(const std::vector<Index>& steps, const std::vector<double>& values, double min_rise) {
  std::vector<Spike> spikes;
  std::vector<double> before;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]))
      continue;
    if (before.size() >= min_steps) {
      const std::vector<double> window(
          before.end() - static_cast<std::ptrdiff_t>(std::min(before.size(), window_steps)), before.end());
      const auto [middle, deviation] = robust_deviation(window);
      const double z = (values[i] - middle) / std::max(deviation, min_deviation * std::abs(middle));
      if (z > far_away && values[i] > min_rise * middle) {
        const bool goes_on = !spikes.empty() && i > 0 && spikes.back().last_step == steps[i - 1];
        if (!goes_on)
          spikes.push_back({.first_step = steps[i], .before = middle, .num_before = window.size()});
        spikes.back().last_step = steps[i];
        spikes.back().value = std::max(spikes.back().value, values[i]);
        spikes.back().z = std::max(spikes.back().z, z);
        continue;
      }
    }
    before.push_back(values[i]);
  }
  return spikes;
}

std::vector<Finding> find_instability(const RecordedRun& run) {
  std::vector<Finding> findings;
  find_divergence(run, findings);
  find_not_finite(run, findings);
  if (std::ranges::none_of(findings, [](const Finding& finding) { return finding.verdict == "diverged"; })) {
    add_spikes(run, Cause::loss_spike, "loss", &StepRecord::loss, loss_rise, findings);
    add_spikes(run, Cause::gradient_spike, "gradient norm", &StepRecord::gradient_norm, norm_rise, findings);
  }  // else they are parts of it
  find_loss_scale(run, findings);
  find_skipped_steps(run, findings);
  find_overfitting(run, findings);
  find_unfinished_warmup(run, findings);
  return findings;
}

}  // namespace espalier
