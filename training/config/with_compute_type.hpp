// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/types.hpp"
#include "core/with_scalar_type.hpp"
#include "models/layout_section.hpp"
#include "models/rank_memory.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

inline std::vector<std::string> compute_type_names() {
  std::vector<std::string> names;
  for (const Precision precision : compute_types)
    names.emplace_back(to_string(precision));
  return names;
}

inline ScalarType compute_type_of(Precision precision) {
  ESPALIER_ASSERT(std::ranges::find(compute_types, precision) != compute_types.end(),
                  fmt::format("nothing trains in {}", to_string(precision)));
  return types_of_precision(precision).compute;
}

/// f.operator()<T>() for its type: with_compute_type(Precision::bf16, [&]<class T>() { return train<T>(config); }).
template <class F>
auto with_compute_type(Precision precision, const F& f) {
  return with_scalar_type(compute_type_of(precision), f);
}

/// f.operator()<P>() for the precision of a config: with_precision(config, [&]<class P>() { ... }).
template <class F>
auto with_precision(const RunConfig& config, const F& f) {
  return with_mixed_precision(compute_type_of(config.layout.precision), config.precision.residual == NumberType::state,
                              f);
}

}  // namespace espalier
