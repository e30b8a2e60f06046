// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planning/search.hpp"

namespace espalier {

/// One point of a scaling curve.
struct ScalePoint {
  int num_devices = 0;
  Index global_batch = 0;
  std::optional<LayoutPrice> price;  ///< nothing: no layout fits or divides
  double efficiency = 0;             ///< tokens per second and device, against the first point that has a price
  std::string what_bends;            ///< below 99 % efficiency: what_bends(); else "nothing"
};

/// The phase whose device-seconds a sequence have grown most from one point to another, as a share of all that have
/// grown: "bubble: 60 % of what is lost (12.1 % of the step, was 3.0 %)". Both points have prices.
std::string what_bends(const ScalePoint& first, const ScalePoint& now);

/// The best layout at each number of devices, with the same global batch everywhere (strong scaling), or with the batch
/// of `space` at the first and in proportion at the others (weak scaling).
/// @throws Error (usage) where the machine cannot have so many devices: it describes no network between its nodes.
std::vector<ScalePoint> predict_scaling(const PlanProblem& problem, const LayoutSpace& space,
                                        const std::vector<int>& num_devices, bool weak);

/// One configuration for several machines: of all layouts that fit everywhere the one whose worst loss against each
/// machine's own best is smallest.
struct CommonLayout {
  std::optional<PlanLayout> layout;
  std::vector<LayoutPrice> prices;  ///< of `layout` on each machine
  std::vector<LayoutPrice> bests;   ///< of each machine alone
  double loss(std::size_t machine) const { return prices[machine].step_seconds / bests[machine].step_seconds - 1; }
};
CommonLayout search_common_layout(const std::vector<PlanProblem>& problems, const LayoutSpace& space);

}  // namespace espalier
