// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/error.hpp"
#include "planning/search.hpp"

namespace espalier {

/// Where no layout of the space can exist: each size that alone would change that, with its values nearest to the one
/// asked for, and what they need of a device where that is more than it has: "--batch 60 or 65; --devices 12 or 14".
/// Empty where no single one does.
std::string nearest_possible(const PlanProblem& problem, const LayoutSpace& space);

/// Why a search found nothing, in a line: what divides and does not fit, or what would divide.
std::string why_no_layout(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result);

/// The fewest devices, more than those of the space and by whole nodes beyond one, on which a layout has room; 0: none
/// of up to 256 times as many.
Index fewest_devices(const PlanProblem& problem, const LayoutSpace& space);

/// The same as an error of usage, with what to do. @pre the search found nothing.
ErrorReport no_layout_report(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result);

}  // namespace espalier
