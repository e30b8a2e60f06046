// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/matmul_onednn.hpp"

namespace espalier {

/// c (m, n) = op(a) (m, k) * op(b) (k, n) + beta * c, by one thread inside a kernel of a host; all row-major with the
/// strides given. Through OpenBLAS where this build has it, whatever matmul_library() is: its OpenMP build runs
/// serially inside a parallel region.
template <class T>
void tile_matmul(T* c, Index ldc, Transpose ta, const T* a, Index lda, Transpose tb, const T* b, Index ldb, Index m,
                 Index n, Index k, std::type_identity_t<T> beta);

/// Operands of 16 bits through oneDNN; only where multiplies_16_bits(ScalarType::bf16, matmul_library()).
inline void tile_matmul(float* c, Index ldc, Transpose ta, const bfloat16* a, Index lda, Transpose tb,
                        const bfloat16* b, Index ldb, Index m, Index n, Index k, float beta) {
  const bool plain_a = ta == Transpose::no;
  const bool plain_b = tb == Transpose::no;
  impl::tile_matmul_onednn({c, m, n, ldc}, ta, {a, plain_a ? m : k, plain_a ? k : m, lda}, tb,
                           {b, plain_b ? k : n, plain_b ? n : k, ldb}, beta);
}

}  // namespace espalier
