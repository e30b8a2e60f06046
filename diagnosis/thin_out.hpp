// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace espalier {

/// Neither infinite nor not a number, nor so large (1e100) that the difference of two such numbers could be.
bool is_drawable(double value);

struct CurvePoint {
  double x = 0;
  double y = 0;
};

/// At most `most` (>= 8) of the points, in their order: of each stretch the lowest and the highest, and the first and
/// the last of all. So a spike of one step in a million stays. A stretch with y that cannot be drawn (is_drawable)
/// keeps one of these.
std::vector<CurvePoint> thin_out(const std::vector<CurvePoint>& points, std::size_t most);

/// Means of `most` (>= 1) stretches of about equal length, the same for all columns: for curves that are added up. All
/// columns are as long as x; what cannot be drawn counts as 0.
struct CurveColumns {
  std::vector<double> x;
  std::vector<std::vector<double>> columns;
};
CurveColumns average_out(const CurveColumns& columns, std::size_t most);

}  // namespace espalier
