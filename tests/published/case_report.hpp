// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tests/published/published_case.hpp"

namespace espalier {

/// Sizes of errors, as shares.
struct ErrorSummary {
  std::size_t count = 0;
  double median = 0;
  double p95 = 0;
  double worst = 0;
  double bias = 0;  ///< median of the errors with their signs
};

/// Of errors with their signs. The median of an even number is the mean of the middle two; the 95th percentile is the
/// smallest value that at least 95 % do not exceed.
ErrorSummary summary_of(std::vector<double> errors);

/// A line for each row with its prediction, what was measured and the error; the rows not priced with their reasons;
/// memory and time by source; last "priced N of M timed rows: median X %, p95 Y %, worst Z %".
std::string case_report(const std::vector<PricedCase>& cases);

/// The same for programs, as JSON: `rows`, and the errors of all (`time`, `memory`) and by source (`sources`).
std::string case_report_json(const std::vector<PricedCase>& cases);

}  // namespace espalier
