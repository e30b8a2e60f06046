// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace espalier {

struct Layout;
struct PlanProblem;

/// A range that holds what is measured in 9 of 10 cases like it.
struct Interval {
  double low = 0;
  double high = 0;
};

/// Around a predicted step time, seconds.
Interval step_interval(const PlanProblem& problem, const Layout& layout, double step_seconds);

/// Around the predicted memory of a device, bytes.
Interval memory_interval(const PlanProblem& problem, const Layout& layout, double bytes);

}  // namespace espalier
