// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/matmul.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/ops/matmul_cublaslt.hpp"
#include "core/ops/matmul_kernels.hpp"
#include "core/ops/matmul_onednn.hpp"
#include "core/work.hpp"

namespace espalier {
namespace {

// What stands in where the library chosen has no kernel for S (oneDNN none for fp64): another library before our own.
template <class S>
MatmulLibrary library_for(MatmulLibrary library) {
  if (library != MatmulLibrary::onednn || std::is_same_v<S, float>)
    return library;
  static const MatmulLibrary other = [] {
    const std::vector<MatmulLibrary> present = matmul_libraries();
    for (const MatmulLibrary candidate : {MatmulLibrary::openblas, MatmulLibrary::kokkos_kernels})
      if (std::find(present.begin(), present.end(), candidate) != present.end())
        return candidate;
    return MatmulLibrary::tiled;
  }();
  return other;
}

template <class T, class Out>
void run(MatmulLibrary library, const ExecSpace& exec, Matrix<Out> c, Transpose ta, Matrix<const T> a, Transpose tb,
         Matrix<const T> b, State<T> alpha, State<T> beta) {
  if (is_cublaslt(library)) {
    if (impl::matmul_cublaslt<T, Out>(exec, library == MatmulLibrary::cublaslt_tf32, c, ta, a, tb, b, alpha, beta))
      return;
  } else if constexpr (!has_master_weights<T>) {
    if (impl::matmul_by_library(library, exec, c, ta, a, tb, b, alpha, beta))
      return;
  } else if (exec_is_host && library != MatmulLibrary::tiled) {
    if constexpr (std::is_same_v<T, bfloat16>)
      if (multiplies_16_bits(scalar_type_of<T>(), library) && alpha == 1)
        return impl::matmul_onednn(c, ta, a, tb, b, beta);
    return impl::matmul_widened(library, exec, c, ta, a, tb, b, alpha, beta);
  }
  impl::matmul_tiled(exec, c, ta, a, tb, b, alpha, beta);
}

}  // namespace

template <class T, class Out>
void matmul(const ExecSpace& exec, std::type_identity_t<Matrix<Out>> c, Transpose transpose_a,
            std::type_identity_t<Matrix<const T>> a, Transpose transpose_b, std::type_identity_t<Matrix<const T>> b,
            State<T> alpha, State<T> beta) {
  const Index rows_a = transpose_a == Transpose::no ? a.rows : a.cols;
  const Index inner_a = transpose_a == Transpose::no ? a.cols : a.rows;
  const Index inner_b = transpose_b == Transpose::no ? b.rows : b.cols;
  const Index cols_b = transpose_b == Transpose::no ? b.cols : b.rows;
  ESPALIER_ASSERT(
      rows_a == c.rows && cols_b == c.cols && inner_a == inner_b,
      fmt::format("({}, {}) x ({}, {}) does not give ({}, {})", rows_a, inner_a, inner_b, cols_b, c.rows, c.cols));
  if (c.rows == 0 || c.cols == 0)
    return;
  count_work(MatmulWork{c.rows, c.cols, inner_a});
  if constexpr (exec_is_host && std::is_same_v<T, State<T>>)
    if (c.rows <= few_rows && transpose_a == Transpose::no && transpose_b == Transpose::yes)
      return impl::matmul_few_rows<T>(exec, c, a, b, alpha, beta);
  // Of an empty sum beta * c is left; some libraries return early and leave c.
  const MatmulLibrary library = inner_a == 0 ? MatmulLibrary::tiled : matmul_library();
  run<T, Out>(library_for<State<T>>(library), exec, c, transpose_a, a, transpose_b, b, alpha, beta);
}

#define ESPALIER_INSTANTIATE(T, Out)                                                                                  \
  template void matmul<T, Out>(const ExecSpace&, Matrix<Out>, Transpose, Matrix<const T>, Transpose, Matrix<const T>, \
                               State<T>, State<T>);
ESPALIER_FOR_MATMUL_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
