// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/json_numbers.hpp"

#include <cmath>
#include <limits>

namespace espalier {

void name_non_finite(nlohmann::ordered_json& value) {
  if (value.is_structured()) {
    for (auto& item : value)
      name_non_finite(item);
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    value = std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  }
}

std::optional<double> named_number(const nlohmann::json& value) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (value == "nan")
    return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf" || value == "-inf")
    return value == "inf" ? infinity : -infinity;
  return std::nullopt;
}

}  // namespace espalier
