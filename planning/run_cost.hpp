// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planning/price_layout.hpp"

namespace espalier {

/// A predicted value and its interval.
struct Predicted {
  double value = 0;
  Interval interval;
};
Predicted operator+(const Predicted& a, const Predicted& b);
Predicted operator*(const Predicted& predicted, double times);

/// What training on PlanProblem::num_tokens takes.
struct RunCost {
  double steps = 0;
  Predicted days;
  Predicted device_hours;           ///< of the layout's devices
  std::optional<Predicted> cost;    ///< in the cluster's currency, where it has a price
  std::optional<Predicted> energy;  ///< kWh, where it has a power
};

/// @pre problem.num_tokens > 0
RunCost run_cost(const PlanProblem& problem, const LayoutPrice& price);

/// Of a job that has all devices of two clusters. Its cost is known where both have a price in one currency.
/// @pre two problems  @param step_seconds of its step  @param tokens_per_step trained in it
RunCost run_cost(const std::vector<PlanProblem>& problems, const Predicted& step_seconds, double tokens_per_step);

std::string run_cost_text(const PlanProblem& problem, const RunCost& run);

/// "300B tokens are 95368 steps: 12.3 days (10.8 to 13.9), 302,000 device-hours (265,000 to 341,000), 755,000 EUR
/// (...), 212,000 kWh (...)".
std::string run_cost_text(const PlanProblem& problem, const LayoutPrice& price);

/// "12.3 days (10.8 to 13.9)"
std::string predicted_text(const Predicted& predicted, const std::string& unit);

/// "58.2 to 76.1".
std::string interval_text(const Interval& interval, int digits = 3);

/// So many digits; from 1,000 on zeros behind them, in groups: "0.463", "12.3", "302,000".
std::string rounded_text(double value, int digits = 3);

/// "300B", "1.5T".
std::string tokens_text(Index tokens);

}  // namespace espalier
