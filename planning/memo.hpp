// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

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

}  // namespace espalier
