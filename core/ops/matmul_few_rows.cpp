// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// For hosts alone. Compiled without fused multiply-adds: the compiler fuses in one loop and not in another.
#include <cstring>
#include <utility>

#include "core/kokkos_compat.hpp"
#include "core/ops/matmul_kernels.hpp"
#include "core/vector_math.hpp"

namespace espalier::impl {
namespace {

constexpr int vector_bytes = 32;

// A vector of GCC's and Clang's: of arrays they do not see that these stay in registers.
template <class T>
struct Lanes {
  static constexpr int count = vector_bytes / static_cast<int>(sizeof(T));
  typedef T Vector __attribute__((vector_size(vector_bytes)));  // NOLINT(modernize-use-using): takes no attribute
  static Vector load(const T* from) {
    Vector values;
    std::memcpy(&values, from, sizeof(values));
    return values;
  }
};

// c(i, j) of `rows` x `cols` elements. The order of each sum depends on nothing but its length.
template <int rows, int cols, class T>
void dot_products(T* c, Index c_stride, const T* a, Index a_stride, const T* b, Index b_stride, Index inner, T alpha,
                  T beta) {
  constexpr int lanes = Lanes<T>::count;
  typename Lanes<T>::Vector sums[rows][cols] = {};
  Index k = 0;
  for (; k + lanes <= inner; k += lanes)
    for (int i = 0; i < rows; ++i)
      for (int j = 0; j < cols; ++j)
        sums[i][j] += Lanes<T>::load(a + i * a_stride + k) * Lanes<T>::load(b + j * b_stride + k);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j) {
      T sum = 0;
      for (int l = 0; l < lanes; ++l)
        sum += sums[i][j][l];
      for (Index l = k; l < inner; ++l)
        sum += a[i * a_stride + l] * b[j * b_stride + l];
      T& out = c[i * c_stride + j];
      out = alpha * sum + (beta == T(0) ? T(0) : beta * out);
    }
}

// Columns [j, j + cols) of c.
template <int cols, class T>
void columns(const Matrix<T>& c, const Matrix<const T>& a, const Matrix<const T>& b, Index j, T alpha, T beta) {
  const T* const b_row = b.data + j * b.stride;
  Index i = 0;
  for (; i + 4 <= c.rows; i += 4)
    dot_products<4, cols>(c.data + i * c.stride + j, c.stride, a.data + i * a.stride, a.stride, b_row, b.stride, a.cols,
                          alpha, beta);
  for (; i < c.rows; ++i)
    dot_products<1, cols>(c.data + i * c.stride + j, c.stride, a.data + i * a.stride, a.stride, b_row, b.stride, a.cols,
                          alpha, beta);
}

}  // namespace

template <class T>
void matmul_few_rows(const ExecSpace& exec, Matrix<T> c, Matrix<const T> a, Matrix<const T> b, T alpha, T beta) {
  constexpr Index strip = 16;  // columns of c that a thread takes at a time
  Kokkos::parallel_for("espalier::core::matmul_few_rows", RangePolicy(exec, 0, (c.cols + strip - 1) / strip),
                       [=](const Index s) {
                         const Index end = smaller((s + 1) * strip, c.cols);
                         Index j = s * strip;
                         for (; j + 2 <= end; j += 2)
                           columns<2>(c, a, b, j, alpha, beta);
                         if (j < end)
                           columns<1>(c, a, b, j, alpha, beta);
                       });
}

#define ESPALIER_INSTANTIATE(T) \
  template void matmul_few_rows<T>(const ExecSpace&, Matrix<T>, Matrix<const T>, Matrix<const T>, T, T);
ESPALIER_FOR_STATE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier::impl
