// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/goal.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.hpp"
#include "planning/run_cost.hpp"

namespace espalier {

namespace {

// As an option takes it: "58070".
std::string option_number(double value) {
  std::string text = rounded_text(value, 4);
  std::erase(text, ',');
  return text;
}

}  // namespace

double seconds_of_goal(const Goal& goal, double tokens) {
  const double by_tokens = goal.least_tokens_per_second ? tokens / *goal.least_tokens_per_second : 0;
  if (!goal.most_step_seconds)
    return by_tokens;
  return by_tokens > 0 ? std::min(by_tokens, *goal.most_step_seconds) : *goal.most_step_seconds;
}

std::vector<GoalResult> goal_results(const LayoutPrice& best, const Goal& goal) {
  constexpr double rounding = 0.001;  // so that the nearest goal, as it is printed, can be reached
  std::vector<GoalResult> results;
  if (goal.most_step_seconds)
    results.push_back({.asked = fmt::format("a step of at most {:.4g} s", *goal.most_step_seconds),
                       .reached = fmt::format("{:.4g} s", best.step_seconds),
                       .margin = 1 - best.step_seconds / *goal.most_step_seconds,
                       .nearest = fmt::format("--max-step-seconds {:.4g}", (1 + rounding) * best.step_seconds)});
  if (goal.least_tokens_per_second)
    results.push_back(
        {.asked = fmt::format("at least {} tokens per second", rounded_text(*goal.least_tokens_per_second, 4)),
         .reached = fmt::format("{} tokens per second", rounded_text(best.tokens_per_second, 4)),
         .margin = best.tokens_per_second / *goal.least_tokens_per_second - 1,
         .nearest = "--min-tokens-per-second " + option_number((1 - rounding) * best.tokens_per_second)});
  return results;
}

std::string goal_text(const GoalResult& result) {
  return result.is_met()
             ? fmt::format("{}: met with {}, {:.1f} % to spare", result.asked, result.reached, 100 * result.margin)
             : fmt::format("{}: missed by {:.1f} %; the best is {} ({})", result.asked, -100 * result.margin,
                           result.reached, result.nearest);
}

void require_goal(const LayoutPrice& best, const Goal& goal, const std::string& where) {
  for (const GoalResult& result : goal_results(best, goal))
    if (!result.is_met())
      throw Error(ExitCode::usage, {.what = "no layout is that fast",
                                    .where = where,
                                    .got = result.asked + " wanted",
                                    .wanted = fmt::format("what can be reached: the best is {}, with {}",
                                                          result.reached, best.layout.text()),
                                    .todo = fmt::format("{}, more --devices, or another --batch", result.nearest)});
}

}  // namespace espalier
