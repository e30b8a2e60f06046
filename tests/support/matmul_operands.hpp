// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "core/ops/matmul_library.hpp"
#include "tests/support/allclose.hpp"
#include "tests/support/tensors.hpp"

namespace espalier::test {

/// Values that a matmul of T takes as they are: TF32, where it is chosen, leaves fp32 the 11 significant bits of fp16.
/// So what a matmul gives differs from plain loops by its sums alone.
template <class T>
Values matmul_operands(Values values) {
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

/// Of a matmul with an addend or a bias: kernels of cuBLASLt for 16 bits may round the matmul before they add.
template <class T>
double tolerance_of_sum(MatmulLibrary library) {
  return is_cublaslt(library) && has_master_weights<T> ? 4 * tolerance<T> : tolerance<T>;
}

}  // namespace espalier::test
