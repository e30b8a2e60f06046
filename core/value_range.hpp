// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>

#include "core/scalars.hpp"

namespace espalier {

/// The allowed values of a number in a config, a file or an option.
struct IntegerRange {
  Index min = std::numeric_limits<Index>::min();
  Index max = std::numeric_limits<Index>::max();
};

struct FloatRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_open = false;  ///< the bound itself is not allowed
  bool max_open = false;
};

/// Ranks of a job. Its launch plans and proves the lists of all of them.
inline constexpr int most_ranks = 1 << 16;

bool inside(Index value, IntegerRange range);
bool inside(double value, FloatRange range);  ///< false for NaN and infinities

/// "at least 1", "0 to 65536"
std::string describe(IntegerRange range);
std::string describe(FloatRange range);

}  // namespace espalier
