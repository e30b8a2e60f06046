// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "planning/common_layout.hpp"
#include "planning/goal.hpp"
#include "planning/scaling.hpp"
#include "planning/search.hpp"

namespace espalier {

/// A recommendation in Markdown that a lead can send on: the layout, and whether it reaches the goal; how it fits;
/// where and why gradients are summed and what that costs; what micro-batches do against the naive split; what
/// precision does and what stays above it and why; the bottleneck and the first change to try. Every number comes from
/// the model, for this problem. `scaling` may be empty.
/// @pre something was found.
std::string memo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
                 const std::vector<ScalePoint>& scaling, const Goal& goal = {});

/// The same for several machines: the layout that is best for all, what each gives up and why, whether it reaches the
/// goals, how it fits, and of each machine where gradients are summed, what precision does, and the bottleneck.
/// @param problems the same model on each machine, as search_common_layout() was given them
/// @pre common.layout
std::string common_memo(const std::vector<PlanProblem>& problems, const LayoutSpace& space, const CommonLayout& common,
                        const Goal& goal = {});

}  // namespace espalier
