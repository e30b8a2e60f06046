// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "planning/search.hpp"

namespace espalier {

/// One configuration for several machines: of all layouts that fit everywhere the one whose worst loss against each
/// machine's own best is smallest.
struct CommonLayout {
  std::optional<Layout> layout;
  std::vector<LayoutPrice> prices;  ///< of `layout` on each machine
  std::vector<LayoutPrice> bests;   ///< of each machine alone

  /// Share by which a machine's step is longer than with its own best; 0 where it is no longer.
  double loss(std::size_t machine) const {
    return std::max(0.0, prices[machine].step_seconds / bests[machine].step_seconds - 1);
  }
};

/// Estimates every layout of the spaces of all machines, simulates the most promising of them and the best of each
/// machine, and chooses. The order of the machines does not matter, beyond that of the answer.
/// @param problems the same model, on as many devices of each machine
CommonLayout search_common_layout(const std::vector<PlanProblem>& problems, const LayoutSpace& space);

}  // namespace espalier
