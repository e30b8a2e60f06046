// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// Around the memory of the stage that has most, bytes.
Interval memory_interval(const PlanProblem& problem, const LayoutPrice& price);

/// Predicted steps of two layouts that differ by less than this share of the faster do not tell which one is faster: of
/// published pairs beyond it 9 of 10 are in the predicted order. Less than an interval: two layouts of one model on one
/// machine are off alike.
double told_apart_share(const Cluster& cluster);

}  // namespace espalier
