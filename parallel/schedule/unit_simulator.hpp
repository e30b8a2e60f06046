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

/// How much longer than its kernels the list takes where gathers and sums go over one link in the order of their start,
/// beside the kernels: what is waited for, first gather and last sum included. Pure.
double exposed_seconds(const UnitList& list, const std::vector<UnitPass>& passes, const UnitTimes& times);

}  // namespace espalier
