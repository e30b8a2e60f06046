// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace espalier {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

/// At most `most` (>= 8) of the points, in their order: of each stretch the lowest and the highest, and the first and
/// the last of all. So a spike of one step in a million stays. A stretch with y that cannot be drawn (is_drawable)
/// keeps one of these.
std::vector<ChartPoint> thin_out(const std::vector<ChartPoint>& points, std::size_t most);

/// Means of `most` (>= 1) stretches of about equal length, the same for all columns: for curves that are added up. All
/// columns are as long as x; what cannot be drawn counts as 0.
struct ChartColumns {
  std::vector<double> x;
  std::vector<std::vector<double>> columns;
};
ChartColumns average_out(const ChartColumns& columns, std::size_t most);

}  // namespace espalier
