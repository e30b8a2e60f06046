// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "planning/search.hpp"

namespace espalier {

/// One configuration for several machines: of all layouts that fit everywhere the one whose worst loss against each
/// machine's own best is smallest.
struct CommonLayout {
  std::optional<Layout> layout;
  std::vector<LayoutPrice> prices;         ///< of `layout` on each machine
  std::vector<LayoutPrice> bests;          ///< of each machine alone, on its own devices
  std::vector<std::string> why_none = {};  ///< of each machine that has no layout at all; empty: all have one

  bool has(std::size_t machine) const { return why_none.empty() || why_none[machine].empty(); }
  /// What is recommended there. @pre has(machine)
  const LayoutPrice& price(std::size_t machine) const { return layout ? prices[machine] : bests[machine]; }

  /// Share by which a machine's step is longer than with its own best; 0 where it is no longer.
  double loss(std::size_t machine) const {
    return std::max(0.0, prices[machine].step_seconds / bests[machine].step_seconds - 1);
  }
};

/// Estimates every layout of the spaces of all machines, simulates the most promising of them and the best of each
/// machine, and chooses. The order of the machines does not matter, beyond that of the answer.
/// @param problems the same model, on as many devices of each machine
CommonLayout search_common_layout(const std::vector<PlanProblem>& problems, const LayoutSpace& space);

/// The recommended layout of each machine alone.
/// @param wants_common the same as search_common_layout(), where the machines have as many devices and a layout suits
/// all
/// @param space becomes the one that was searched
CommonLayout compare_machines(const std::vector<PlanProblem>& problems, LayoutSpace& space, bool wants_common);

/// Why search_common_layout() has no layout: what the first machine without one of its own says of it; where all have
/// one, that none suits all.
ErrorReport no_common_layout_report(const std::vector<PlanProblem>& problems, const LayoutSpace& space);

/// A sentence each: how much faster the fastest machine is than another, and what that costs. Names are unique.
std::vector<std::string> comparison_sentences(const std::vector<PlanProblem>& problems, const CommonLayout& common);

/// "h100"; "h100 (32 devices)" where the machines differ in devices.
std::string machine_name(const std::vector<PlanProblem>& problems, std::size_t machine);

}  // namespace espalier
