// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/error.hpp"
#include "core/scalars.hpp"

namespace espalier {

/// f.operator()<T>() for the type of that name: with_scalar_type(ScalarType::bf16, [&]<class T>() { ... }).
template <class F>
auto with_scalar_type(ScalarType type, const F& f) {
  switch (type) {
    case ScalarType::fp64: return f.template operator()<double>();
    case ScalarType::bf16: return f.template operator()<bfloat16>();
    case ScalarType::fp16: return f.template operator()<float16>();
    case ScalarType::fp32: break;
  }
  return f.template operator()<float>();
}

/// The same for a state type.
template <class F>
auto with_state_type(ScalarType type, const F& f) {
  ESPALIER_ASSERT(is_state_type(type), std::string("no state is of ") + to_string(type));
  return type == ScalarType::fp64 ? f.template operator()<double>() : f.template operator()<float>();
}

/// f.operator()<P>() for a compute type and a residual stream in it, or in its state type.
template <class F>
auto with_mixed_precision(ScalarType compute, bool residual_in_state_type, const F& f) {
  return with_scalar_type(compute, [&]<class T>() {
    if constexpr (has_master_weights<T>)
      if (residual_in_state_type)
        return f.template operator()<MixedPrecision<T, State<T>>>();
    return f.template operator()<MixedPrecision<T>>();
  });
}

}  // namespace espalier
