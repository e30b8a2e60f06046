// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "planning/common_layout.hpp"
#include "planning/goal.hpp"

namespace espalier {

/// A recommendation in Markdown for several machines: the layout that is best for all, what each loses by it and why,
/// whether it reaches the goals, how it fits, and of each machine where gradients are summed, what precision does, and
/// the bottleneck.
/// @param problems the same model on each machine, as search_common_layout() was given them
/// @pre common.layout
std::string common_memo(const std::vector<PlanProblem>& problems, const LayoutSpace& space, const CommonLayout& common,
                        const Goal& goal = {});

}  // namespace espalier
