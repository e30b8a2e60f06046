// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/types.hpp"
#include "training/run_config.hpp"

namespace espalier {

/// What precision.compute may be.
inline const std::vector<std::string> compute_types = {"fp32", "bf16", "fp16", "fp64"};

/// f.operator()<T>() for the type of that name: with_compute_type("bf16", [&]<class T>() { return train<T>(config); }).
template <class F>
auto with_compute_type(const std::string& name, const F& f) {
  if (name == "fp64")
    return f.template operator()<double>();
  if (name == "bf16")
    return f.template operator()<bfloat16>();
  if (name == "fp16")
    return f.template operator()<float16>();
  ESPALIER_ASSERT(name == "fp32", "no compute type is called " + name);
  return f.template operator()<float>();
}

/// f.operator()<P>() for the precision of a config: with_precision(config.precision, [&]<class P>() { ... }).
template <class F>
auto with_precision(const RunConfig::Precision& precision, const F& f) {
  return with_compute_type(precision.compute, [&]<class T>() {
    if constexpr (has_masters<T>)
      if (precision.residual == "state")
        return f.template operator()<MixedPrecision<T, State<T>>>();
    return f.template operator()<MixedPrecision<T>>();
  });
}

}  // namespace espalier
