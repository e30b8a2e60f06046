// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "planning/layout_space.hpp"
#include "planning/price_layout.hpp"

namespace espalier {

/// The fastest layout on fewer devices, if it trains more tokens per second than `best` on all of them. Tried are whole
/// nodes and a power of two, where the number of devices is neither: model and batch can hardly be divided by 65.
std::optional<LayoutPrice> faster_on_fewer(const PlanProblem& problem, const LayoutSpace& space,
                                           const LayoutPrice& best);

}  // namespace espalier
