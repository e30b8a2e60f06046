// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planning/goal.hpp"
#include "planning/search.hpp"

namespace espalier {

/// One point of a scaling curve.
struct ScalePoint {
  int num_devices = 0;
  Index global_batch = 0;
  std::optional<LayoutPrice> price;  ///< nothing: no layout fits or divides
  double efficiency = 0;             ///< tokens per second and device, against the first point that has a price
  std::string limited_by;  ///< below 99 % efficiency: what_limits(); above 101 %: what_gains(); else "nothing"
};

/// The phase whose device-seconds a sequence have grown most from one point to another, as a share of all that have
/// grown: "bubble: 60 % of the loss (12.1 % of the step, was 3.0 %)". Both points have prices.
std::string what_limits(const ScalePoint& first, const ScalePoint& now);

/// Why a point is more efficient than the first: the phase whose device-seconds a sequence have fallen most, and
/// whether its layout, on the devices of the first point, would not have fitted there: "above 100 %: less
/// tensor_comm (0.0 % of the step, was 2.4 %); this layout with fewer replicas does not fit on 8 devices".
/// "nothing" where no phase has fallen. Both points have prices.
std::string what_gains(const PlanProblem& problem, const ScalePoint& first, const ScalePoint& now);

/// The best layout at each number of devices, with the same global batch everywhere (strong scaling), or with the batch
/// of `space` at the first and in proportion at the others (weak scaling).
/// @throws Error (usage) where the machine cannot have so many devices: it describes no network between its nodes.
std::vector<ScalePoint> predict_scaling(const PlanProblem& problem, const LayoutSpace& space,
                                        const std::vector<int>& num_devices, bool weak);

/// Where on a curve a goal is reached.
struct CurveGoal {
  std::string asked;              ///< "a step of at most 30 s"
  std::optional<int> holds_from;  ///< the fewest devices from which on every point reaches it
  std::vector<int> holds_at;      ///< all that reach it, by devices
  GoalResult nearest;             ///< of the point that comes nearest, or has most to spare
  int nearest_devices = 0;
};

/// One for each goal that is set. @pre a point has a price.
std::vector<CurveGoal> goals_on_curve(const std::vector<ScalePoint>& points, const Goal& goal);

/// The point that an answer is about: the fewest devices on which all goals hold; without goals, or where they hold
/// nowhere, the most that have a layout.
const ScalePoint& point_of_answer(const std::vector<ScalePoint>& points, const Goal& goal);

/// "a step of at most 30 s: holds from 32 devices on", or where it holds and where not, or the nearest that is reached.
std::string curve_goal_text(const CurveGoal& goal);

/// @throws Error (usage) when no point reaches a goal, with the nearest that one reaches.
void require_goals_on_curve(const std::vector<CurveGoal>& goals);

}  // namespace espalier
