// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/matmul.hpp"
#include "core/vector_math.hpp"

namespace espalier {
namespace impl {
/// The product of one thread, through a BLAS where there is one (which runs serially inside a parallel region).
template <class T>
void tile_matmul_on_host(T* c, Index ldc, Transpose ta, const T* a, Index lda, Transpose tb, const T* b, Index ldb,
                         Index m, Index n, Index k, T alpha, T beta);
}  // namespace impl

/// c (m, n) = alpha * op(a) (m, k) * op(b) (k, n) + beta * c, by the members of one team inside a kernel; all
/// row-major with the strides given. Call from every member; the caller puts barriers around it. On GPUs the operands
/// may be of 16 bits.
template <class S, class A, class B>
KOKKOS_INLINE_FUNCTION void tile_matmul(const TeamMember& team, S* c, Index ldc, Transpose ta, const A* a, Index lda,
                                        Transpose tb, const B* b, Index ldb, Index m, Index n, Index k,
                                        std::type_identity_t<S> alpha, std::type_identity_t<S> beta) {
  if constexpr (exec_is_host) {
    impl::tile_matmul_on_host(c, ldc, ta, a, lda, tb, b, ldb, m, n, k, alpha, beta);
  } else {
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, m * n), [&](const Index at) {
      const Index i = at / n;
      const Index j = at % n;
      S sum = 0;
      for (Index l = 0; l < k; ++l)
        sum += static_cast<S>(ta == Transpose::no ? a[i * lda + l] : a[l * lda + i]) *
               static_cast<S>(tb == Transpose::no ? b[l * ldb + j] : b[j * ldb + l]);
      c[i * ldc + j] = alpha * sum + (beta == S(0) ? S(0) : beta * c[i * ldc + j]);
    });
  }
}

}  // namespace espalier
