// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "parallel/schedule/unit_actions.hpp"

namespace espalier {

/// Seconds of what a list of units does.
struct UnitTimes {
  std::vector<double> kernels;  ///< of each pass
  double gather = 0;            ///< of one unit
  double reduce = 0;
};

/// The exposed communication of the list: how much longer it takes than its kernels. Gathers and sums go over one link,
/// in the order of their start, overlapped with the kernels. Pure.
double exposed_seconds(const UnitList& list, const std::vector<UnitPass>& passes, const UnitTimes& times);

}  // namespace espalier
