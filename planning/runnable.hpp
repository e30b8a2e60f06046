// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "planning/price_layout.hpp"

namespace espalier {

/// What `train` lacks to run the layout ("context parallelism; ZeRO-3"); empty when it runs it as it is.
std::string why_not_runnable(const PlanProblem& problem, const PlanLayout& layout);

}  // namespace espalier
