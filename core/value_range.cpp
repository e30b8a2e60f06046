// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/value_range.hpp"

#include <fmt/format.h>

#include <cmath>

namespace espalier {

std::string describe(IntegerRange range) {
  const IntegerRange any;
  if (range.max == any.max)
    return fmt::format("at least {}", range.min);
  if (range.min == any.min)
    return fmt::format("at most {}", range.max);
  return fmt::format("{} to {}", range.min, range.max);
}

std::string describe(FloatRange range) {
  std::string text;
  if (range.min > -std::numeric_limits<double>::infinity())
    text = fmt::format("{} {}", range.min_open ? "more than" : "at least", range.min);
  if (range.max < std::numeric_limits<double>::infinity())
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ", range.max_open ? "less than" : "at most", range.max);
  return text.empty() ? "a finite number" : text;
}

bool inside(Index value, IntegerRange range) { return value >= range.min && value <= range.max; }

bool inside(double value, FloatRange range) {
  return std::isfinite(value) && (range.min_open ? value > range.min : value >= range.min) &&
         (range.max_open ? value < range.max : value <= range.max);
}

}  // namespace espalier
