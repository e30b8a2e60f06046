// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planning/price_layout.hpp"

namespace espalier {

/// What the fastest layout must reach.
struct Goal {
  std::optional<double> most_step_seconds;
  std::optional<double> least_tokens_per_second;
};

/// What a step of so many tokens may take; 0: there is no goal.
double seconds_of_goal(const Goal& goal, double tokens);

/// Whether it does.
struct GoalResult {
  std::string asked;    ///< "a step of at most 30 s"
  std::string reached;  ///< "29.05 s"
  double margin = 0;    ///< share of what was asked; negative: missed by so much
  std::string nearest;  ///< option with the nearest goal that can be reached: "--max-step-seconds 29.08"
  bool is_met() const { return margin >= 0; }
};

/// One for each goal that is set.
std::vector<GoalResult> goal_results(const LayoutPrice& best, const Goal& goal);

/// "a step of at most 30 s: met with 29.05 s, 3.2 % to spare", "...: missed by 12.0 %; the best is 33.6 s
/// (--max-step-seconds 33.63)".
std::string goal_text(const GoalResult& result);

/// @throws Error (usage) when the fastest layout misses a goal; the error says which is the nearest that can be
/// reached. @param where the machine, where there are several
void require_goal(const LayoutPrice& best, const Goal& goal, const std::string& where = {});

}  // namespace espalier
