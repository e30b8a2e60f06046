// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/published/published_case.hpp"

namespace espalier {

/// A number of the planner that published runs decide, as a factor of what it is today.
struct FittedConstant {
  std::string name;
  double spread = 0;                            ///< standard deviation of the factor's logarithm before any run is seen
  std::function<double*(PublishedCase&)> find;  ///< it in a row; nullptr where the row's price does not depend on it
};

/// Those of the step time: of all devices, and the matrix rate of each device type and precision.
std::vector<FittedConstant> constants_of_time(const std::vector<PublishedCase>& cases);

/// Those of the memory.
std::vector<FittedConstant> constants_of_memory();

}  // namespace espalier
