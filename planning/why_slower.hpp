// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "planning/price_layout.hpp"

namespace espalier {

inline constexpr double equal_share = 1e-4;  ///< steps that differ by less are as fast as each other

/// "12.0 % (5.1 s against 4.5 s)", with as many digits as tell them apart.
std::string against_text(const LayoutPrice& price, const LayoutPrice& best);

/// "slower by 12.0 % (5.1 s against 4.5 s): 0.5 s more in tensor_comm, its tensor ranks lie on several nodes"; "as fast
/// (4.5 s)" where nothing is. The cause is something that holds for `price` and not for `best`, and is left out where
/// the two layouts tell none.
/// @pre for the same batch; `best` is no slower.
std::string why_slower(const PlanProblem& problem, const LayoutPrice& price, const LayoutPrice& best);

}  // namespace espalier
