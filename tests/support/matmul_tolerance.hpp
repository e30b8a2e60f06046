// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/matmul_library.hpp"
#include "tests/support/allclose.hpp"

namespace espalier::test {

/// The tolerance of T where a product went through the library chosen: TF32 has the fraction of fp16.
template <class T>
double matmul_tolerance() {
  const bool is_tf32 = matmul_library() == MatmulLibrary::cublaslt_tf32 && std::is_same_v<T, float>;
  return is_tf32 ? 2 * tolerance<float16> : tolerance<T>;
}

}  // namespace espalier::test
