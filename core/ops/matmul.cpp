// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/matmul.hpp"

#include <algorithm>
#include <atomic>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/ops/matmul_onednn.hpp"
#include "core/random.hpp"
#include "core/stopwatch.hpp"

namespace espalier {
namespace {

std::atomic<MatmulLibrary>& chosen_library() {
  static std::atomic<MatmulLibrary> library{matmul_libraries().back()};
  return library;
}

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
  if constexpr (!has_masters<T>) {
    if (impl::matmul_by_library(library, exec, c, ta, a, tb, b, alpha, beta))
      return;
  } else if (exec_is_host && library != MatmulLibrary::tiled) {
    if constexpr (std::is_same_v<T, bfloat16>)
      if (multiplies_16_bits<T>(library) && alpha == 1)
        return impl::matmul_onednn<Out>(c, ta, a, tb, b, beta);
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
  // Of an empty sum beta * c is left; some libraries return early and leave c.
  const MatmulLibrary library = inner_a == 0 ? MatmulLibrary::tiled : chosen_library().load();
  run<T, Out>(library_for<State<T>>(library), exec, c, transpose_a, a, transpose_b, b, alpha, beta);
}

template <class T>
bool multiplies_16_bits(MatmulLibrary library) {
  return std::is_same_v<T, bfloat16> && library == MatmulLibrary::onednn && impl::onednn_multiplies_bf16();
}

template <class T>
std::size_t matmul_workspace_bytes(MatmulLibrary library) {
  if (!has_masters<T> || !exec_is_host || library == MatmulLibrary::tiled)
    return 0;
  if (multiplies_16_bits<T>(library))
    return impl::onednn_packed_bytes;
  return sizeof(float) * impl::widened_edge * (impl::widened_edge + 2 * impl::widened_depth);
}

void release_matmul_workspace() {
  impl::release_widened_workspace();
  impl::release_onednn_workspace();
}

const char* to_string(MatmulLibrary library) {
  switch (library) {
    case MatmulLibrary::tiled: return "tiled";
    case MatmulLibrary::kokkos_kernels: return "kokkos_kernels";
    case MatmulLibrary::openblas: return "openblas";
    case MatmulLibrary::onednn: return "onednn";
  }
  return "unknown";
}

MatmulLibrary matmul_library() { return chosen_library(); }
void set_matmul_library(MatmulLibrary library) { chosen_library() = library; }

MatmulLibrary parse_matmul_library(const std::string& name) {
  std::string present;
  for (const MatmulLibrary library : matmul_libraries()) {
    if (name == to_string(library))
      return library;
    present += std::string(present.empty() ? "" : ", ") + to_string(library);
  }
  throw Error(ExitCode::usage, {.what = "this build has no such GEMM library",
                                .got = name,
                                .wanted = present,
                                .todo = "set run.matmul (of bench step: --matmul) to one of these, or to auto"});
}

template <class T>
std::vector<double> measure_matmul_rates(const ExecSpace& exec, Index size, int repetitions) {
  const RandomStream stream(1, "measure_matmul_rates");
  Tensor<T, 2> a("espalier::workspace::measure_a", size, size);
  Tensor<T, 2> b("espalier::workspace::measure_b", size, size);
  Tensor<T, 2> c("espalier::workspace::measure_c", size, size);
  Kokkos::parallel_for(
      "espalier::core::measure_matmul_rates::fill", Kokkos::RangePolicy<ExecSpace>(exec, 0, size),
      KOKKOS_LAMBDA(const Index i) {
        for (Index j = 0; j < size; ++j) {
          a(i, j) =
              static_cast<T>(static_cast<State<T>>(stream.uniform(static_cast<std::uint64_t>(i * size + j)) - 0.5));
          b(i, j) =
              static_cast<T>(static_cast<State<T>>(stream.uniform(static_cast<std::uint64_t>(j * size + i)) - 0.5));
        }
      });
  compat::fence(exec, "espalier::measure_matmul_rates: inputs are ready before the clock starts");
  // In turns, so that whatever else the machine does for a while meets all of them.
  const std::vector<MatmulLibrary> libraries = matmul_libraries();
  constexpr double unknown = 1e30;
  std::vector<double> best_seconds(libraries.size(), unknown);
  for (int repetition = 0; repetition <= repetitions; ++repetition)  // one more: the first warms up
    for (std::size_t i = 0; i < libraries.size(); ++i) {
      if (libraries[i] == MatmulLibrary::tiled && (repetition > 1 || (size > 1024 && libraries.size() > 1)))
        continue;  // slow by design; one figure is enough
      const Stopwatch stopwatch;
      run<T, T>(libraries[i], exec, c, Transpose::no, a, Transpose::yes, b, 1, 0);
      compat::fence(exec, "espalier::measure_matmul_rates: the product is done when the clock stops");
      const double seconds = stopwatch.seconds();
      if (repetition > 0)
        best_seconds[i] = std::min(best_seconds[i], seconds);
    }
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  std::vector<double> rates;
  rates.reserve(libraries.size());
  for (const double seconds : best_seconds)
    rates.push_back(seconds < unknown ? flops / seconds : 0);
  return rates;
}

#define ESPALIER_INSTANTIATE(T, Out)                                                                                  \
  template void matmul<T, Out>(const ExecSpace&, Matrix<Out>, Transpose, Matrix<const T>, Transpose, Matrix<const T>, \
                               State<T>, State<T>);
ESPALIER_INSTANTIATE(float, float)
ESPALIER_INSTANTIATE(double, double)
ESPALIER_INSTANTIATE(bfloat16, bfloat16)
ESPALIER_INSTANTIATE(bfloat16, float)
ESPALIER_INSTANTIATE(float16, float16)
ESPALIER_INSTANTIATE(float16, float)
#undef ESPALIER_INSTANTIATE

#define ESPALIER_INSTANTIATE(T)                                  \
  template bool multiplies_16_bits<T>(MatmulLibrary);            \
  template std::size_t matmul_workspace_bytes<T>(MatmulLibrary); \
  template std::vector<double> measure_matmul_rates<T>(const ExecSpace&, Index, int);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier
