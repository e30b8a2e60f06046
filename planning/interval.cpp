// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/interval.hpp"

#include <algorithm>

#include "planning/price_layout.hpp"

namespace espalier {
namespace {

// published_left_out --free --intervals prints these; of the first it takes what each device type is off by constants
// of the others. Own memory is that of `train --dry-run` [docs/planner.md].
constexpr CaseKind other_device{"published cases on devices without fitted constants", 0.82, 1.47};
constexpr CaseKind short_step{"published cases with steps below 1 s", 0.84, 1.71};
constexpr CaseKind exposed_messages{"published cases that wait for messages", 0.86, 1.37};
constexpr CaseKind usual_step{"published cases with steps of 1 s or more", 0.85, 1.17};
constexpr CaseKind with_experts{"published mixtures of experts", 0.73, 1.79};
constexpr CaseKind measured_machine{"layers that were measured on this machine", 0, 0};  // Accelerator::error_share
constexpr CaseKind own_memory{"layouts of train", 0.99, 1.01};
constexpr CaseKind other_memory{"published cases of other programs", 0.85, 1.28};

constexpr double published_resolution = 0.05;  // published_left_out prints it, too

constexpr double short_seconds = 1;    // of a step that may wait for the host and for stragglers
constexpr double much_waiting = 0.15;  // of a step, for messages

}  // namespace

const CaseKind& time_kind(const PlanProblem& problem, const LayoutPrice& price) {
  if (problem.cluster.device.error_share > 0)
    return measured_machine;
  if (!problem.cluster.device.unfitted.empty())
    return other_device;
  if (problem.implementation.experts.count > 0)
    return with_experts;
  if (price.step_seconds < short_seconds)
    return short_step;
  const double messages = price[Phase::tensor_comm] + price[Phase::data_comm] + price[Phase::pipeline_comm];
  if (messages > much_waiting * price.step_seconds)
    return exposed_messages;
  return usual_step;
}

const CaseKind& memory_kind(const PlanProblem& problem) { return problem.memory_of ? other_memory : own_memory; }

Interval step_interval(const PlanProblem& problem, const LayoutPrice& price) {
  const double measured = problem.cluster.device.error_share;
  if (measured > 0)
    return {price.step_seconds * (1 - measured), price.step_seconds * (1 + measured)};
  const CaseKind& kind = time_kind(problem, price);
  return {price.step_seconds * kind.low, price.step_seconds * kind.high};
}

Interval memory_interval(const PlanProblem& problem, std::size_t bytes) {
  const CaseKind& kind = memory_kind(problem);
  return {static_cast<double>(bytes) * kind.low, static_cast<double>(bytes) * kind.high};
}

double step_resolution(const Cluster& cluster) {
  const double measured = cluster.device.error_share;
  return measured > 0 ? std::min(measured, published_resolution) : published_resolution;
}

}  // namespace espalier
