// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace espalier {

struct Cluster;
struct LayoutPrice;
struct PlanProblem;

/// A range that holds what is measured in 9 of 10 cases like it.
struct Interval {
  double low = 0;
  double high = 0;
};

/// Published cases of one kind: what was measured is `low` to `high` times what was predicted, in 9 of 10 of them. The
/// prediction is by constants that were fitted without the document of the case.
struct CaseKind {
  const char* name = "";  ///< "published cases ..."
  double low = 0;
  double high = 0;
};

/// The kind of a priced layout. @pre its seconds, or memory, are filled in
const CaseKind& time_kind(const PlanProblem& problem, const LayoutPrice& price);
const CaseKind& memory_kind(const PlanProblem& problem);

/// Around the step time, seconds; by the error of the calibration where the cluster was measured.
Interval step_interval(const PlanProblem& problem, const LayoutPrice& price);

/// Around predicted bytes of a device.
Interval memory_interval(const PlanProblem& problem, std::size_t bytes);

/// Below this relative difference of two predicted steps we cannot say which layout is faster. Above it, 9 of 10
/// published pairs have the predicted order. It is less than an interval: errors of two layouts of one model on one
/// machine are alike.
double step_resolution(const Cluster& cluster);

}  // namespace espalier
