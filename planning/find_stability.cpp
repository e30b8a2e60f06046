// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/find_stability.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/median.hpp"
#include "io/units.hpp"
#include "planning/step_profile.hpp"

namespace espalier {
namespace {

constexpr std::size_t window_steps = 32;
constexpr std::size_t least_steps = 8;  // before which nothing is far from anything
constexpr double far_away = 6;          // spreads
constexpr double least_spread = 0.01;   // of the median
constexpr double loss_rise = 1.1;
constexpr double norm_rise = 3;
constexpr double diverged = 1.5;             // times the first loss
constexpr std::size_t last_losses = 3;       // one high loss is a spike, not a direction
constexpr std::size_t steps_to_learn = 100;  // after which, and after the warmup, a loss has fallen
constexpr double skipped_share = 0.02;
constexpr double collapse = 1024;

Change calmer(const RunSetup& setup) {
  if (setup.clip_grad_norm <= 0)
    return {.setting = "optimizer.clip_grad_norm = 1.0"};
  return {.setting = fmt::format("optimizer.learning_rate = {:g}, or a longer optimizer.warmup_steps (now {})",
                                 setup.peak_learning_rate / 2, setup.warmup_steps)};
}

void add_spikes(const RecordedRun& run, Cause cause, const char* what, double RecordedStep::*value, double least_rise,
                std::vector<Finding>& findings) {
  std::vector<Index> steps;
  std::vector<double> values;
  for (const RecordedStep& step : run.steps) {
    steps.push_back(step.times.step);
    values.push_back(step.*value);
  }
  const std::vector<Spike> spikes = find_spikes(steps, values, least_rise);
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
      fmt::format("the largest stands {:.0f} spreads above the {} steps before it", worst.z, worst.num_before)};
  finding.changes = {calmer(run.setup)};
  findings.push_back(std::move(finding));
}

void find_not_finite(const RecordedRun& run, std::vector<Finding>& findings) {
  const auto found = std::find_if(run.steps.begin(), run.steps.end(),
                                  [](const RecordedStep& step) { return !std::isfinite(step.loss); });
  if (found == run.steps.end())
    return;
  Finding finding{.cause = Cause::not_finite, .title = {}, .risk = 1};
  finding.title = fmt::format("the loss is {} at step {}", found->loss, found->times.step);
  finding.changes = {calmer(run.setup)};
  if (run.setup.compute == "fp16")
    finding.changes.push_back({.setting = "precision.compute = \"bf16\""});
  findings.push_back(std::move(finding));
}

// The end against the start, which needs no window of steps before: an explosion in the first ten has none.
void find_divergence(const RecordedRun& run, std::vector<Finding>& findings) {
  std::vector<double> losses;
  for (const RecordedStep& step : run.steps)
    if (std::isfinite(step.loss))
      losses.push_back(step.loss);
  if (losses.size() <= last_losses || losses.size() < run.steps.size())
    return;  // not finite is a finding of its own
  const auto median_of_last = [&](std::size_t count) {
    return median_of(std::vector<double>(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end()));
  };
  const double last = median_of_last(last_losses);
  const std::size_t tenth = losses.size() / 10;
  const double first_tenth =
      tenth > 0 ? median_of(std::vector<double>(losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(tenth)))
                : 0;
  const double last_tenth = tenth > 0 ? median_of_last(tenth) : 0;
  const bool rises = losses.front() > 0 && last > diverged * losses.front();
  const bool never_falls =
      first_tenth > 0 && last_tenth >= first_tenth &&
      losses.size() >= std::max(steps_to_learn, 2 * static_cast<std::size_t>(run.setup.warmup_steps));
  if (!rises && !never_falls)
    return;
  Finding finding{.cause = Cause::divergence,
                  .title = {},
                  .size = rises ? last / losses.front() : last_tenth / first_tenth,
                  .unit = rises ? "times the first loss" : "times the first losses"};
  if (rises) {
    finding.title =
        fmt::format("the training diverges, its loss rises: {:.4g} at step {}, {:.4g} at step {}", losses.front(),
                    run.steps.front().times.step, losses.back(), run.steps.back().times.step);
    finding.evidence = {
        fmt::format("the median of the last {} losses is {:.2f} times the first", last_losses, finding.size)};
  } else {
    finding.title = fmt::format("the loss does not fall: {:.4g} in the first {} steps, {:.4g} in the last {} (medians)",
                                first_tenth, tenth, last_tenth, tenth);
    finding.evidence = {
        fmt::format("{} steps, of which {} warm the learning rate up", losses.size(), run.setup.warmup_steps)};
  }
  finding.risk = rises ? 0.95 : 0.5;
  finding.changes = {{.setting = fmt::format("optimizer.learning_rate = {:g} (now {:g})",
                                             run.setup.peak_learning_rate / 10, run.setup.peak_learning_rate)}};
  if (run.setup.clip_grad_norm <= 0)
    finding.changes.push_back(calmer(run.setup));
  findings.push_back(std::move(finding));
}

void find_loss_scale(const RecordedRun& run, std::vector<Finding>& findings) {
  if (run.setup.compute != "fp16" || run.steps.empty())
    return;
  double highest = run.setup.initial_loss_scale;
  for (const RecordedStep& step : run.steps)
    highest = std::max(highest, step.loss_scale);
  const RecordedStep& last = run.steps.back();
  const bool lowest = last.loss_scale <= run.setup.minimum_loss_scale && last.loss_scale < highest;
  if (lowest || last.loss_scale * collapse <= highest) {
    Finding finding{
        .cause = Cause::loss_scale_collapse, .title = {}, .size = highest / last.loss_scale, .unit = "times lower"};
    finding.title = fmt::format("the loss scale has fallen from {:g} to {:g}{}", highest, last.loss_scale,
                                lowest ? ", as low as it may" : "");
    finding.risk = 0.8;
    finding.evidence = {"gradients overflow fp16 again and again; small ones are lost meanwhile"};
    finding.changes = {{.setting = "precision.compute = \"bf16\""}, calmer(run.setup)};
    findings.push_back(std::move(finding));
  }
}

// In every precision: fp16 skips what overflows under the loss scale, the spike guard what it is told to. What was
// skipped before the first step of the record is not known to be of it.
void find_skipped_steps(const RecordedRun& run, std::vector<Finding>& findings) {
  Index anomalies = 0;
  Index overflows = 0;
  Index before = run.steps.empty() || run.steps.front().times.step == 1 ? 0 : run.steps.front().skipped_steps;
  for (const RecordedStep& step : run.steps) {
    if (step.skipped_steps > before)
      ++(step.is_anomaly ? anomalies : overflows);
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
    finding.evidence.push_back(fmt::format("of {} a gradient overflowed {}", overflows, run.setup.compute));
    finding.changes = {{.setting = "precision.compute = \"bf16\""},
                       {.setting = "a longer precision.loss_scale_growth_interval"}};
  }
  if (anomalies > 0) {
    finding.evidence.push_back(
        fmt::format("{} were spikes or not finite, which stability.on_spike = \"skip\" passes over", anomalies));
    finding.changes.push_back(calmer(run.setup));
  }
  findings.push_back(std::move(finding));
}

}  // namespace

std::vector<Spike> find_spikes(const std::vector<Index>& steps, const std::vector<double>& values, double least_rise) {
  std::vector<Spike> spikes;
  std::vector<double> before;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]))
      continue;
    if (before.size() >= least_steps) {
      const std::vector<double> window(
          before.end() - static_cast<std::ptrdiff_t>(std::min(before.size(), window_steps)), before.end());
      const auto [middle, deviation] = robust_spread(window);
      const double z = (values[i] - middle) / std::max(deviation, least_spread * std::abs(middle));
      if (z > far_away && values[i] > least_rise * middle) {
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
  find_not_finite(run, findings);
  find_divergence(run, findings);
  add_spikes(run, Cause::loss_spike, "loss", &RecordedStep::loss, loss_rise, findings);
  add_spikes(run, Cause::gradient_spike, "gradient norm", &RecordedStep::gradient_norm, norm_rise, findings);
  find_loss_scale(run, findings);
  find_skipped_steps(run, findings);
  return findings;
}

}  // namespace espalier
