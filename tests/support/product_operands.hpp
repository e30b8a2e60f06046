// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "core/ops/matmul_library.hpp"
#include "tests/support/tensors.hpp"

namespace espalier::test {

/// Values that a product of T takes as they are: TF32, where it is chosen, leaves fp32 the 11 significant bits of fp16.
/// So what a product gives differs from plain loops by its sums alone.
template <class T>
Values product_operands(Values values) {
  values = rounded<T>(std::move(values));
  if (matmul_library() != MatmulLibrary::cublaslt_tf32 || !std::is_same_v<T, float>)
    return values;
  for (double& value : values) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    value = std::ldexp(std::nearbyint(std::ldexp(fraction, 11)), exponent - 11);
  }
  return values;
}

}  // namespace espalier::test
