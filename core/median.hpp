// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace espalier {

/// The middle value; of an even number the mean of the middle two; 0 of none.
inline double median_of(std::vector<double> values) {
  if (values.empty())
    return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.size() % 2 == 1 ? *middle : (*std::max_element(values.begin(), middle) + *middle) / 2;
}

/// Where values lie and how far they scatter, as a few wild ones among them hardly change it.
struct RobustDeviation {
  double median = 0;
  double deviation = 0;  ///< 1.4826 median absolute deviations: the standard deviation, if they are normal
};

inline RobustDeviation robust_deviation(std::vector<double> values) {
  constexpr double mad_to_deviation = 1.4826;  // 1 / (sqrt(2) erfinv(1/2))
  const double median = median_of(values);
  for (double& value : values)
    value = std::abs(value - median);
  return {median, mad_to_deviation * median_of(std::move(values))};
}

}  // namespace espalier
