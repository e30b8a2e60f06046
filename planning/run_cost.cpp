// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/run_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/scalars.hpp"
#include "io/units.hpp"

namespace espalier {

Predicted operator+(const Predicted& a, const Predicted& b) {
  return {a.value + b.value, {a.interval.low + b.interval.low, a.interval.high + b.interval.high}};
}

Predicted operator*(const Predicted& predicted, double times) {
  return {predicted.value * times, {predicted.interval.low * times, predicted.interval.high * times}};
}

namespace {

// On so many devices of the cluster.
RunCost cost_of(const PlanProblem& problem, const Predicted& step_seconds, double tokens_per_step, int devices) {
  const Cluster& cluster = problem.cluster;
  RunCost run;
  run.steps = std::ceil(to_double(problem.num_tokens) / tokens_per_step);
  const Predicted hours = step_seconds * (run.steps / 3600);
  run.days = hours * (1.0 / 24);
  run.device_hours = hours * devices;
  if (cluster.price_per_device_hour > 0)
    run.cost = run.device_hours * cluster.price_per_device_hour;
  if (cluster.device_watts > 0)
    run.energy = run.device_hours * (cluster.device_watts / 1000);
  return run;
}

std::optional<Predicted> sum_of(const std::optional<Predicted>& a, const std::optional<Predicted>& b) {
  return a && b ? std::optional(*a + *b) : std::nullopt;
}

}  // namespace

RunCost run_cost(const PlanProblem& problem, const LayoutPrice& price) {
  return cost_of(problem, {price.step_seconds, price.step_interval},
                 to_double(price.layout.global_batch) * to_double(problem.sequence_length), price.layout.num_devices());
}

RunCost run_cost(const std::vector<PlanProblem>& problems, const Predicted& step_seconds, double tokens_per_step) {
  const auto of = [&](const PlanProblem& problem) {
    return cost_of(problem, step_seconds, tokens_per_step, problem.cluster.num_devices());
  };
  RunCost run = of(problems[0]);
  const RunCost other = of(problems[1]);
  run.device_hours = run.device_hours + other.device_hours;
  run.cost = problems[0].cluster.currency == problems[1].cluster.currency ? sum_of(run.cost, other.cost) : std::nullopt;
  run.energy = sum_of(run.energy, other.energy);
  return run;
}

std::string rounded_text(double value, int digits) {
  if (value < 999.5)
    return fmt::format("{:.{}g}", value, digits);
  const double unit = std::pow(10, std::max(0.0, std::floor(std::log10(value)) + 1 - digits));
  std::string text = fmt::format("{:.0f}", std::round(value / unit) * unit);
  for (std::size_t at = text.size(); at > 3; at -= 3)
    text.insert(at - 3, 1, ',');
  return text;
}

std::string interval_text(const Interval& interval, int digits) {
  return fmt::format("{} to {}", rounded_text(interval.low, digits), rounded_text(interval.high, digits));
}

std::string predicted_text(const Predicted& predicted, const std::string& unit) {
  return fmt::format("{}{}{} ({})", rounded_text(predicted.value), unit.empty() ? "" : " ", unit,
                     interval_text(predicted.interval));
}

std::string tokens_text(Index tokens) {
  if (tokens < 1'000'000)
    return fmt::format("{}", tokens);
  const double billions = to_double(tokens) / 1e9;
  if (billions < 1)
    return fmt::format("{:.4g}M", billions * 1000);
  return billions < 1000 ? fmt::format("{:.4g}B", billions) : fmt::format("{:.4g}T", billions / 1000);
}

std::string run_cost_text(const PlanProblem& problem, const LayoutPrice& price) {
  return run_cost_text(problem, run_cost(problem, price));
}

std::string run_cost_text(const PlanProblem& problem, const RunCost& run) {
  std::string text = fmt::format("{} tokens are {}: {}, {}", tokens_text(problem.num_tokens),
                                 counted(static_cast<Index>(run.steps), "step"), predicted_text(run.days, "days"),
                                 predicted_text(run.device_hours, "device-hours"));
  if (run.cost)
    text += ", " + predicted_text(*run.cost, problem.cluster.currency);
  if (run.energy)
    text += ", " + predicted_text(*run.energy, "kWh");
  return text;
}

}  // namespace espalier
