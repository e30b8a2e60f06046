// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "planning/price_layout.hpp"

namespace espalier {

inline constexpr double equal_share = 1e-4;  ///< steps that differ by less are as fast as each other

/// Share of a step, or of tokens per second, below which nothing is gained or lost that is worth a change.
inline constexpr double worthwhile = 0.005;

/// "12.0 % (5.1 s against 4.5 s)", with as many digits as tell them apart.
std::string against_text(const LayoutPrice& price, const LayoutPrice& best);

struct Comparison {
  std::string result;  ///< "slower by 12.0 % (5.1 s against 4.5 s)", or "as fast (4.5 s)"
  /// "it spends 0.5 s more in tensor_comm, because its tensor ranks are on several nodes"; empty where it is as fast.
  std::string reason;
};

/// What follows "because" holds for `price` and not for `best`. It is left out where nothing like that is found.
/// @pre for the same batch; `best` is no slower.
Comparison compare_speed(const PlanProblem& problem, const LayoutPrice& price, const LayoutPrice& best);

/// Both in one text: "slower by ...: it spends ...".
std::string why_slower(const PlanProblem& problem, const LayoutPrice& price, const LayoutPrice& best);

/// Why `best` is preferred to a layout that the prediction cannot tell from it: "it has more stages"; or nothing.
const char* what_is_more_complex(const Layout& layout, const Layout& best);

}  // namespace espalier
