// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The only file that multiplies by a GEMM library, but for matmul_onednn.cpp with its matmuls of 16 bits and for
// matmul_cublaslt.cpp.
#ifdef ESPALIER_HAVE_OPENBLAS
#include <cblas.h>
#endif
#ifdef ESPALIER_HAVE_ONEDNN
#include <dnnl.h>
#endif
#ifdef ESPALIER_HAVE_KOKKOS_KERNELS
#include <KokkosBlas3_gemm.hpp>
#endif

#include <limits>
#include <new>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/ops/matmul_kernels.hpp"
#include "core/ops/tile_matmul.hpp"

namespace espalier::impl {
namespace {

// A size as the library counts them.
template <class Int>
[[maybe_unused]] Int checked(Index size) {
  ESPALIER_ASSERT(
      size <= std::numeric_limits<Int>::max(),
      "the GEMM library counts in " + std::to_string(8 * sizeof(Int)) + " bits, got " + std::to_string(size));
  return static_cast<Int>(size);
}

#ifdef ESPALIER_HAVE_OPENBLAS
CBLAS_TRANSPOSE cblas(Transpose t) { return t == Transpose::yes ? CblasTrans : CblasNoTrans; }

void cblas_gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, blasint m, blasint n, blasint k, float alpha, const float* a,
                blasint lda, const float* b, blasint ldb, float beta, float* c, blasint ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
void cblas_gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, blasint m, blasint n, blasint k, double alpha, const double* a,
                blasint lda, const double* b, blasint ldb, double beta, double* c, blasint ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

template <class T>
void openblas(T* c, Index ldc, Transpose ta, const T* a, Index lda, Transpose tb, const T* b, Index ldb, Index m,
              Index n, Index k, T alpha, T beta) {
  cblas_gemm(cblas(ta), cblas(tb), checked<blasint>(m), checked<blasint>(n), checked<blasint>(k), alpha, a,
             checked<blasint>(lda), b, checked<blasint>(ldb), beta, c, checked<blasint>(ldc));
}
#endif

#ifdef ESPALIER_HAVE_ONEDNN
[[maybe_unused]] void onednn(const Matrix<float>& c, Transpose ta, const Matrix<const float>& a, Transpose tb,
                             const Matrix<const float>& b, Index inner, float alpha, float beta) {
  const dnnl_status_t status =
      dnnl_sgemm(ta == Transpose::yes ? 'T' : 'N', tb == Transpose::yes ? 'T' : 'N', c.rows, c.cols, inner, alpha,
                 a.data, a.stride, b.data, b.stride, beta, c.data, c.stride);
  if (status == dnnl_out_of_memory)
    throw std::bad_alloc();
  if (status != dnnl_success)
    throw Error(ExitCode::defect, {.what = "oneDNN refuses a matmul",
                                   .where = "dnnl_sgemm of (" + std::to_string(c.rows) + ", " + std::to_string(inner) +
                                            ") x (" + std::to_string(inner) + ", " + std::to_string(c.cols) + ")",
                                   .got = "status " + std::to_string(status),
                                   .wanted = "dnnl_success",
                                   .todo = "choose another library: run.matmul=openblas"});
}
#endif

#ifdef ESPALIER_HAVE_KOKKOS_KERNELS
// A window of `stride` columns, cut to those in use: still LayoutRight, so that the TPL takes it.
template <class T>
auto strided_view(const Matrix<T>& m) {
  const Kokkos::View<T**, Kokkos::LayoutRight, MemSpace, Kokkos::MemoryUnmanaged> rows(
      m.data, checked<int>(m.rows), checked<int>(m.stride));  // its TPLs count in int
  return Kokkos::View<T**, Kokkos::LayoutRight, MemSpace, Kokkos::MemoryUnmanaged>(
      Kokkos::subview(rows, Kokkos::ALL, std::pair<Index, Index>(0, m.cols)));
}

template <class T>
void kokkos_kernels(const ExecSpace& exec, const Matrix<T>& c, Transpose ta, const Matrix<const T>& a, Transpose tb,
                    const Matrix<const T>& b, T alpha, T beta) {
  const char* const op_a = ta == Transpose::yes ? "T" : "N";
  const char* const op_b = tb == Transpose::yes ? "T" : "N";
  const auto gemm = [&](const auto&... space) {
    KokkosBlas::gemm(space..., op_a, op_b, alpha, strided_view(a), strided_view(b), beta, strided_view(c));
  };
  if constexpr (requires {
                  KokkosBlas::gemm(exec, op_a, op_b, alpha, strided_view(a), strided_view(b), beta, strided_view(c));
                }) {
    gemm(exec);
  } else {  // an old Kokkos Kernels, which knows only the default instance
    compat::fence(exec, "espalier::matmul: the default instance continues with what this one has computed");
    gemm();
    compat::fence(ExecSpace(), "espalier::matmul: this instance continues with what the default one has computed");
  }
}
#endif

}  // namespace

template <class T>
bool matmul_by_library(MatmulLibrary library, [[maybe_unused]] const ExecSpace& exec, [[maybe_unused]] Matrix<T> c,
                       Transpose ta, Matrix<const T> a, [[maybe_unused]] Transpose tb,
                       [[maybe_unused]] Matrix<const T> b, [[maybe_unused]] T alpha, [[maybe_unused]] T beta) {
  [[maybe_unused]] const Index inner = ta == Transpose::no ? a.cols : a.rows;
  switch (library) {
    case MatmulLibrary::tiled:
    case MatmulLibrary::cublaslt:
    case MatmulLibrary::cublaslt_tf32: break;
    case MatmulLibrary::kokkos_kernels:
#ifdef ESPALIER_HAVE_KOKKOS_KERNELS
      kokkos_kernels(exec, c, ta, a, tb, b, alpha, beta);
      return true;
#endif
      break;
    case MatmulLibrary::openblas:
#ifdef ESPALIER_HAVE_OPENBLAS
      if constexpr (exec_is_host) {
        openblas(c.data, c.stride, ta, a.data, a.stride, tb, b.data, b.stride, c.rows, c.cols, inner, alpha, beta);
        return true;
      }
#endif
      break;
    case MatmulLibrary::onednn:
#ifdef ESPALIER_HAVE_ONEDNN
      if constexpr (exec_is_host && std::is_same_v<T, float>) {  // oneDNN has no fp64 GEMM
        onednn(c, ta, a, tb, b, inner, alpha, beta);
        return true;
      }
#endif
      break;
  }
  return false;
}

}  // namespace espalier::impl

namespace espalier {

template <class T>
void tile_matmul(T* c, Index ldc, Transpose ta, const T* a, Index lda, Transpose tb, const T* b, Index ldb, Index m,
                 Index n, Index k, std::type_identity_t<T> beta) {
#ifdef ESPALIER_HAVE_OPENBLAS
  impl::openblas(c, ldc, ta, a, lda, tb, b, ldb, m, n, k, T(1), beta);
#else
  for (Index i = 0; i < m; ++i) {
    for (Index j = 0; j < n; ++j)
      c[i * ldc + j] = beta == T(0) ? T(0) : beta * c[i * ldc + j];
    for (Index l = 0; l < k; ++l) {
      const T factor = ta == Transpose::no ? a[i * lda + l] : a[l * lda + i];
      for (Index j = 0; j < n; ++j)
        c[i * ldc + j] += factor * (tb == Transpose::no ? b[l * ldb + j] : b[j * ldb + l]);
    }
  }
#endif
}

#define ESPALIER_INSTANTIATE(T)                                                                                        \
  template bool impl::matmul_by_library<T>(MatmulLibrary, const ExecSpace&, Matrix<T>, Transpose, Matrix<const T>,     \
                                           Transpose, Matrix<const T>, T, T);                                          \
  template void tile_matmul<T>(T*, Index, Transpose, const T*, Index, Transpose, const T*, Index, Index, Index, Index, \
                               T);
ESPALIER_FOR_STATE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
