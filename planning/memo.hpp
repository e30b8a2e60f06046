// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/error.hpp"
#include "planning/common_layout.hpp"
#include "planning/goal.hpp"
#include "planning/scaling.hpp"
#include "planning/search.hpp"

namespace espalier {

/// A recommendation in Markdown. A page that a manager reads: question, answer, reasons, what limits it, what to do
/// first, what would change the answer, how sure it is. And details: how it fits; where and why gradients are summed
/// and what that costs; what micro-batches do against the naive split; what precision does and what stays above it and
/// why; what could be changed. Every number comes from the model, for this problem. No sentence has more than 25 words.
/// `scaling` may be empty.
/// @pre something was found.
std::string memo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
                 const std::vector<ScalePoint>& scaling, const Goal& goal = {});

/// The same where nothing was found: what does not fit, the fewest devices on which a layout does, what would change
/// it.
/// @param report of no_layout_report()
std::string no_layout_memo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
                           const ErrorReport& report);

/// The same for several machines: side by side, with the layout that is best for all or each machine's own.
/// @param problems the same model on each machine, as compare_machines() was given them
/// @param joint what joint_job_text() says, or nothing
std::string common_memo(const std::vector<PlanProblem>& problems, const LayoutSpace& space, const CommonLayout& common,
                        const Goal& goal = {}, const std::string& joint = {});

}  // namespace espalier
