// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "planning/layout_space.hpp"
#include "tests/published/csv.hpp"

namespace espalier {

/// The step time of a row.
struct PublishedTime {
  double seconds = 0;    ///< 0: none is published, or why_not
  bool is_told = false;  ///< a time, or a rate from which one follows, may it lack what else that takes
  std::string why_not = {};
};

/// From iter_time_s, else tokens_per_s_per_gpu, else from what a device achieved: TFLOP/s where the tag tflops= of the
/// notes says which are counted, or MFU, which counts those of the model, a share of peak_tflops or else of the
/// device's peak. @throws Error (data) for what is no number.
PublishedTime published_time(const CsvRow& row, const PlanProblem& problem, const LayoutSpace& space);

}  // namespace espalier
