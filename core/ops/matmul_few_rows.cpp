// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <utility>

#include "core/kokkos_compat.hpp"
#include "core/ops/matmul_kernels.hpp"
#include "core/vector_math.hpp"

namespace espalier::impl {
namespace {

// a * b + c, rounded in one way, whatever stands around it: where the CPU can fuse, the compiler may not choose.
template <class T>
KOKKOS_INLINE_FUNCTION T fused(T a, T b, T c) {
#if defined(FP_FAST_FMA) && defined(FP_FAST_FMAF)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

// c(i, j) of `rows` x `cols` elements. The order of each sum depends on nothing but its length.
template <int rows, int cols, class T>
KOKKOS_INLINE_FUNCTION void dot_products(T* c, Index c_stride, const T* a, Index a_stride, const T* b, Index b_stride,
                                         Index inner, T alpha, T beta) {
  constexpr int lanes = 32 / sizeof(T);
  T sums[rows][cols][lanes] = {};
  Index k = 0;
  for (; k + lanes <= inner; k += lanes)
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        for (int l = 0; l < lanes; ++l)
          sums[i][j][l] = fused(a[i * a_stride + k + l], b[j * b_stride + k + l], sums[i][j][l]);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) {
      T* const sum = sums[i][j];
      for (int l = 0; k + l < inner; ++l)
        sum[l] = fused(a[i * a_stride + k + l], b[j * b_stride + k + l], sum[l]);
      for (int half = lanes / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l)
          sum[l] += sum[l + half];
      T& out = c[i * c_stride + j];
      out = fused(alpha, sum[0], beta == T(0) ? T(0) : beta * out);
    }
}

}  // namespace

template <class T>
void matmul_few_rows(const ExecSpace& exec, Matrix<T> c, Matrix<const T> a, Matrix<const T> b, T alpha, T beta) {
  constexpr Index strip = 16;  // columns of c, rows of b, that stay in the first-level cache for all rows of a
  Kokkos::parallel_for(
      "espalier::core::matmul_few_rows", RangePolicy(exec, 0, (c.cols + strip - 1) / strip),
      KOKKOS_LAMBDA(const Index s) {
        const Index end = smaller((s + 1) * strip, c.cols);
        const auto products = [&]<int rows, int cols>(std::integer_sequence<int, rows, cols>, Index i, Index j) {
          dot_products<rows, cols>(c.data + i * c.stride + j, c.stride, a.data + i * a.stride, a.stride,
                                   b.data + j * b.stride, b.stride, a.cols, alpha, beta);
        };
        const auto all_rows = [&]<int cols>(std::integer_sequence<int, cols>, Index j) {
          Index i = 0;
          for (; i + 4 <= c.rows; i += 4)
            products(std::integer_sequence<int, 4, cols>(), i, j);
          for (; i < c.rows; ++i)
            products(std::integer_sequence<int, 1, cols>(), i, j);
        };
        Index j = s * strip;
        for (; j + 2 <= end; j += 2)
          all_rows(std::integer_sequence<int, 2>(), j);
        if (j < end)
          all_rows(std::integer_sequence<int, 1>(), j);
      });
}

template void matmul_few_rows<float>(const ExecSpace&, Matrix<float>, Matrix<const float>, Matrix<const float>, float,
                                     float);
template void matmul_few_rows<double>(const ExecSpace&, Matrix<double>, Matrix<const double>, Matrix<const double>,
                                      double, double);

}  // namespace espalier::impl
