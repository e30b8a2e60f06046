// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The only file that calls a GEMM library.
#ifdef ESPALIER_HAVE_OPENBLAS
#include <cblas.h>
#endif
#ifdef ESPALIER_HAVE_ONEDNN
#include <dnnl.h>
#endif
#ifdef ESPALIER_HAVE_KOKKOS_KERNELS
#include <KokkosBlas3_gemm.hpp>
#endif

#include "core/kokkos_compat.hpp"
#include "core/ops/matmul.hpp"
#include "core/ops/tile_matmul.hpp"

namespace espalier {
namespace impl {
namespace {

#ifdef ESPALIER_HAVE_OPENBLAS
CBLAS_TRANSPOSE cblas(Transpose t) { return t == Transpose::yes ? CblasTrans : CblasNoTrans; }

void openblas(float* c, blasint ldc, Transpose ta, const float* a, blasint lda, Transpose tb, const float* b,
              blasint ldb, blasint m, blasint n, blasint k, float alpha, float beta) {
  cblas_sgemm(CblasRowMajor, cblas(ta), cblas(tb), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
void openblas(double* c, blasint ldc, Transpose ta, const double* a, blasint lda, Transpose tb, const double* b,
              blasint ldb, blasint m, blasint n, blasint k, double alpha, double beta) {
  cblas_dgemm(CblasRowMajor, cblas(ta), cblas(tb), m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
#endif

#ifdef ESPALIER_HAVE_KOKKOS_KERNELS
// A window of `stride` columns, cut to those in use: still LayoutRight, so that the TPL takes it.
template <class T>
auto strided_view(const Matrix<T>& m) {
  const Kokkos::View<T**, Kokkos::LayoutRight, MemSpace, Kokkos::MemoryUnmanaged> rows(m.data, m.rows, m.stride);
  return Kokkos::View<T**, Kokkos::LayoutRight, MemSpace, Kokkos::MemoryUnmanaged>(
      Kokkos::subview(rows, Kokkos::ALL, std::pair<Index, Index>(0, m.cols)));
}
#endif

}  // namespace

template <class T>
bool matmul_by_library(MatmulLibrary library, [[maybe_unused]] const ExecSpace& exec, Matrix<T> c, Transpose ta,
                       Matrix<const T> a, Transpose tb, Matrix<const T> b, T alpha, T beta) {
  [[maybe_unused]] const Index inner = ta == Transpose::no ? a.cols : a.rows;
  switch (library) {
    case MatmulLibrary::tiled: return false;
    case MatmulLibrary::kokkos_kernels:
#ifdef ESPALIER_HAVE_KOKKOS_KERNELS
      KokkosBlas::gemm(ta == Transpose::yes ? "T" : "N", tb == Transpose::yes ? "T" : "N", alpha, strided_view(a),
                       strided_view(b), beta, strided_view(c));
      return true;
#else
      return false;
#endif
    case MatmulLibrary::openblas:
#ifdef ESPALIER_HAVE_OPENBLAS
      openblas(c.data, static_cast<blasint>(c.stride), ta, a.data, static_cast<blasint>(a.stride), tb, b.data,
               static_cast<blasint>(b.stride), static_cast<blasint>(c.rows), static_cast<blasint>(c.cols),
               static_cast<blasint>(inner), alpha, beta);
      return true;
#else
      return false;
#endif
    case MatmulLibrary::onednn:
#ifdef ESPALIER_HAVE_ONEDNN
      if constexpr (std::is_same_v<T, float>)  // oneDNN has no fp64 GEMM
        return dnnl_sgemm(ta == Transpose::yes ? 'T' : 'N', tb == Transpose::yes ? 'T' : 'N', c.rows, c.cols, inner,
                          alpha, a.data, a.stride, b.data, b.stride, beta, c.data, c.stride) == dnnl_success;
#endif
      return false;
  }
  return false;
}

template <class T>
void tile_matmul_on_host(T* c, Index ldc, Transpose ta, const T* a, Index lda, Transpose tb, const T* b, Index ldb,
                         Index m, Index n, Index k, T alpha, T beta) {
#ifdef ESPALIER_HAVE_OPENBLAS
  openblas(c, static_cast<blasint>(ldc), ta, a, static_cast<blasint>(lda), tb, b, static_cast<blasint>(ldb),
           static_cast<blasint>(m), static_cast<blasint>(n), static_cast<blasint>(k), alpha, beta);
#else
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j)
      c[i * ldc + j] = beta == T(0) ? T(0) : beta * c[i * ldc + j];
    for (Index l = 0; l < k; ++l) {
      const T factor = alpha * (ta == Transpose::no ? a[i * lda + l] : a[l * lda + i]);
      for (Index j = 0; j < n; ++j)
        c[i * ldc + j] += factor * (tb == Transpose::no ? b[l * ldb + j] : b[j * ldb + l]);
    }
  }
#endif
}

#define ESPALIER_INSTANTIATE(T)                                                                                  \
  template bool matmul_by_library<T>(MatmulLibrary, const ExecSpace&, Matrix<T>, Transpose, Matrix<const T>,     \
                                     Transpose, Matrix<const T>, T, T);                                          \
  template void tile_matmul_on_host<T>(T*, Index, Transpose, const T*, Index, Transpose, const T*, Index, Index, \
                                       Index, Index, T, T);
ESPALIER_INSTANTIATE(float)
ESPALIER_INSTANTIATE(double)
#undef ESPALIER_INSTANTIATE

}  // namespace impl

std::vector<MatmulLibrary> matmul_libraries() {
  return {
      MatmulLibrary::tiled,
#ifdef ESPALIER_HAVE_KOKKOS_KERNELS
      MatmulLibrary::kokkos_kernels,
#endif
#ifdef ESPALIER_HAVE_ONEDNN
      MatmulLibrary::onednn,
#endif
#ifdef ESPALIER_HAVE_OPENBLAS
      MatmulLibrary::openblas,
#endif
  };
}

std::string describe_matmul_libraries() {
  std::string text = "tiled (own kernel)";
#ifdef ESPALIER_HAVE_KOKKOS_KERNELS
  text += ", Kokkos Kernels";
#endif
#ifdef ESPALIER_HAVE_ONEDNN
  const dnnl_version_t* version = dnnl_version();
  text += fmt::format(", oneDNN {}.{}.{}", version->major, version->minor, version->patch);
#endif
#ifdef ESPALIER_HAVE_OPENBLAS
  const char* const threading = openblas_get_parallel() == 2   ? "OpenMP"
                                : openblas_get_parallel() == 1 ? "pthreads"
                                                               : "serial";
  text += fmt::format(", {} on {} kernels ({})", openblas_get_config(), openblas_get_corename(), threading);
#endif
  return text;
}

}  // namespace espalier
