// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/types.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// What precision.compute may be.
inline const std::vector<Precision> compute_types = {Precision::fp32, Precision::bf16, Precision::fp16,
                                                     Precision::fp64};
inline std::vector<std::string> compute_type_names() {
  std::vector<std::string> names;
  for (const Precision precision : compute_types)
    names.emplace_back(to_string(precision));
  return names;
}

/// f.operator()<T>() for its type: with_compute_type(Precision::bf16, [&]<class T>() { return train<T>(config); }).
template <class F>
auto with_compute_type(Precision precision, const F& f) {
  if (precision == Precision::fp64)
    return f.template operator()<double>();
  if (precision == Precision::bf16)
    return f.template operator()<bfloat16>();
  if (precision == Precision::fp16)
    return f.template operator()<float16>();
  ESPALIER_ASSERT(precision == Precision::fp32, fmt::format("nothing trains in {}", to_string(precision)));
  return f.template operator()<float>();
}

/// f.operator()<P>() for the precision of a config: with_precision(config, [&]<class P>() { ... }).
template <class F>
auto with_precision(const RunConfig& config, const F& f) {
  return with_compute_type(config.layout.precision, [&]<class T>() {
    if constexpr (has_masters<T>)
      if (config.precision.residual == "state")
        return f.template operator()<MixedPrecision<T, State<T>>>();
    return f.template operator()<MixedPrecision<T>>();
  });
}

}  // namespace espalier
