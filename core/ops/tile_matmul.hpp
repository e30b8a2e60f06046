// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/matmul_onednn.hpp"
#include "core/vector_math.hpp"

namespace espalier {
namespace impl {
/// The product of one thread, through OpenBLAS where this build has it, whatever matmul_library() is. The OpenMP build
/// of OpenBLAS runs serially inside a parallel region.
template <class T>
void tile_matmul_on_host(T* c, Index ldc, Transpose ta, const T* a, Index lda, Transpose tb, const T* b, Index ldb,
                         Index m, Index n, Index k, T beta);

/// Through oneDNN; only where multiplies_16_bits<bfloat16>(matmul_library()).
inline void tile_matmul_on_host(float* c, Index ldc, Transpose ta, const bfloat16* a, Index lda, Transpose tb,
                                const bfloat16* b, Index ldb, Index m, Index n, Index k, float beta) {
  const bool plain_a = ta == Transpose::no;
  const bool plain_b = tb == Transpose::no;
  tile_matmul_onednn({c, m, n, ldc}, ta, {a, plain_a ? m : k, plain_a ? k : m, lda}, tb,
                     {b, plain_b ? k : n, plain_b ? n : k, ldb}, beta);
}
}  // namespace impl

/// c (m, n) = op(a) (m, k) * op(b) (k, n) + beta * c, by the members of one team inside a kernel; all
/// row-major with the strides given. Call from every member; the caller puts barriers around it. The operands may be of
/// 16 bits on GPUs, and on hosts where multiplies_16_bits().
template <class S, class A, class B>
KOKKOS_INLINE_FUNCTION void tile_matmul(const TeamMember& team, S* c, Index ldc, Transpose ta, const A* a, Index lda,
                                        Transpose tb, const B* b, Index ldb, Index m, Index n, Index k,
                                        std::type_identity_t<S> beta) {
  if constexpr (exec_is_host) {
    impl::tile_matmul_on_host(c, ldc, ta, a, lda, tb, b, ldb, m, n, k, beta);
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, m * n), [&](const Index at) {
      const Index i = at / n;
      const Index j = at % n;
      S sum = 0;
      for (Index l = 0; l < k; ++l)
        sum += static_cast<S>(ta == Transpose::no ? a[i * lda + l] : a[l * lda + i]) *
               static_cast<S>(tb == Transpose::no ? b[l * ldb + j] : b[j * ldb + l]);
      c[i * ldc + j] = sum + (beta == S(0) ? S(0) : beta * c[i * ldc + j]);
    });
  }
}

}  // namespace espalier
