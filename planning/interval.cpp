// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/interval.hpp"

#include "planning/price_layout.hpp"

namespace espalier {
namespace {

constexpr double error_of_own_memory = 0.01;  // of layouts of `train` against `train --dry-run`
constexpr double error_of_other_memory = 0.34;

Interval either_way(double value, double share) { return {value * (1 - share), value * (1 + share)}; }

}  // namespace

Interval step_interval(const PlanProblem& problem, const Layout& /*layout*/, double step_seconds) {
  return either_way(step_seconds, problem.cluster.device.error_share);
}

Interval memory_interval(const PlanProblem& problem, const Layout& /*layout*/, double bytes) {
  return either_way(bytes, problem.implementation.arenas_of_train ? error_of_own_memory : error_of_other_memory);
}

}  // namespace espalier
